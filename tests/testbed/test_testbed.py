"""Real runs on network namespaces take what their links force, and leave nothing behind however they end."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prismllm.launch import LaunchError, LaunchResult
from prismllm.testbed import Runs, Testbed, TestbedError, rate
from prismllm.testbed.times import Run, read_times

REPOSITORY = Path(__file__).resolve().parents[2]
EXCHANGE = REPOSITORY / "tests/testbed/jobs/exchange.py"


@pytest.fixture(scope="session")
def hosts():
    try:
        with Testbed(2, rate("100mbit")):
            return
    except TestbedError as reason:
        pytest.skip(str(reason))


class Processes:
    """Those that a command has started, however deep, by a variable of their environment."""

    def __init__(self):
        self.mark = f"TESTBED_TEST={secrets.token_hex(8)}"

    def start(self, *words, **environment):
        name, _, value = self.mark.partition("=")
        return subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, cwd=REPOSITORY, env=os.environ | {name: value} | environment)  # fmt: skip

    def run(self, *words, **environment):
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def left(self):
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(entry)
            except OSError:
                continue
        return found


@pytest.fixture
def processes():
    return Processes()


def on_testbed(*words):
    return ("-m", "tests.testbed", *words)


def test_a_message_takes_what_the_link_forces(hosts, processes):
    code, out, err = processes.run(*on_testbed("--rate", "100mbit", "-n", 2, "--repeat", 2, EXCHANGE))
    assert code == 0, err
    told = json.loads(out)
    # 1 MB at 12.5 MB/s, less what passes at once from the token buckets of both ends.
    least = (1e6 - 20e3 - 40e3) / 12.5e6
    for run in told["runs"]:
        assert all(seconds >= least for seconds in run["iter_s"])
        assert run["result"]["received_bytes"] >= 4_000_000
        assert run["result"]["LOCAL_WORLD_SIZE"] == "1" and run["result"]["GROUP_WORLD_SIZE"] == "2"
    assert told["iteration_time_s"] >= least and told["spread"] >= 0


def test_ranks_of_one_host_do_not_use_its_link(hosts, processes):
    code, out, err = processes.run(*on_testbed("--hosts", 1, "--rate", "100mbit", "-n", 2, "--repeat", 1, EXCHANGE))
    assert code == 0, err
    result = json.loads(out)["runs"][0]["result"]
    assert result["received_bytes"] < 1_000_000 and result["LOCAL_WORLD_SIZE"] == "2"


def test_record_on_hosts_writes_a_trace_with_transfers_as_long_as_the_link_forces(hosts, processes, tmp_path):
    trace = tmp_path / "exchange.prism"
    code, out, err = processes.run("-m", "prismllm", "record", "-n", 4, "--hosts", 2, "--rate", "100mbit", "-o", trace,
                                   "--json", "-", EXCHANGE)  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["ranks"] == 4
    from prismllm.replay import replay

    assert replay(str(trace)).critical_path_s >= 4 * (1e6 - 60e3) / 12.5e6


@pytest.mark.parametrize(("fault", "said"), [
    ("raise", "rank 1 failed:"), ("killed", "rank 1 was killed by SIGKILL"), ("silent", "rank 0 printed no line TIMES"),
    ("hang", "has not ended within 6 s"),
])  # fmt: skip
def test_programs_that_fail_end_the_run_with_their_reason_and_leave_nothing(hosts, processes, fault, said):
    code, out, err = processes.run(*on_testbed("--rate", "1gbit", "-n", 2, "--repeat", 1, "--deadline", 6, EXCHANGE,
                                            "--fault", fault))  # fmt: skip
    assert (code, out) == (3, "")
    assert said in err and "namespace" not in err
    assert processes.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_nothing(hosts, processes, number, tmp_path):
    process = processes.start("-m", "prismllm", "record", "-n", "2", "--hosts", "2", "--rate", "1gbit", "-o",
                              tmp_path / "x.prism", EXCHANGE, "--fault", "hang")  # fmt: skip
    assert "HANGS" in process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == {signal.SIGKILL: -9}.get(number, 128 + number)
    end = time.monotonic() + 20  # after SIGKILL, which nobody can follow, the zygote ends the ranks by itself
    while processes.left() and time.monotonic() < end:
        time.sleep(0.05)
    assert processes.left() == []


def tool(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="what is missing to root can be tried by root only")
@pytest.mark.parametrize(("tools", "said"), [
    ({}, "the command 'ip' of iproute2"),
    ({"ip": "exit 0"}, "the command 'tc' of iproute2"),
    ({"ip": "echo 'Operation not permitted' >&2; exit 2", "tc": "exit 0"},
     "'ip link' between namespaces does not work here: Operation not permitted"),
    ({"ip": "exit 0", "tc": "echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2"},
     "'tc ... tbf', which limits the rate of a link, does not work here: Error: Specified qdisc kind is unknown."),
])  # fmt: skip
def test_what_is_missing_is_said(processes, tmp_path, tools, said):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in tools.items():
        tool(folder, name, text)
    words = ("record", "-n", 2, "--hosts", 2, "--rate", "1gbit", "-o", tmp_path / "x.prism", EXCHANGE)
    for command in (on_testbed("-n", 2, EXCHANGE), ("-m", "prismllm", *words)):
        code, out, err = processes.run(*command, PATH=str(folder))
        assert (code, out) == (2, "") and said in err and len(err.splitlines()) == 1
    assert os.listdir(tmp_path) == ["bin"]


def test_users_who_are_not_root_are_told(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match="needs root"), Testbed(2, rate("1gbit")):
        pass


@pytest.mark.parametrize(("words", "said"), [
    (("--hosts", 3, "--rate", "1gbit"), "--hosts 3 holds 4 ranks"),
    (("--hosts", 2), "--hosts and --rate go together"),
    (("--hosts", 2, "--rate", "fast"), "rate 'fast'; accepted: 1mbit to 100gbit"),
    (("--hosts", 2, "--rate", "1gbit", "--nproc-per-node", 2), "without --nproc-per-node"),
])  # fmt: skip
def test_wrong_use_of_record_is_said(processes, tmp_path, words, said):
    code, _, err = processes.run("-m", "prismllm", "record", "-n", 4, *words, "-o", tmp_path / "x.prism", EXCHANGE)
    assert code == 2 and said in err


@pytest.mark.parametrize(("text", "bits"), [("400mbit", 400e6), ("2.5gbit", 2.5e9), ("1000kbit", 1e6),
                                            ("8000000bit", 8e6)])  # fmt: skip
def test_rates_are_tcs_words(text, bits):
    assert rate(text) == bits


@pytest.mark.parametrize("text", ["", "400", "400Mbit", "-1mbit", "999kbit", "1e3mbit", "200gbit", "nanbit", "4 mbit"])
def test_rates_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="accepted: 1mbit to 100gbit"):
        rate(text)


def test_the_time_of_runs_is_the_median_of_the_slowest_rank_without_the_warm_up():
    # Of one run: iterations 2 to 4 took 1, 3 and 2 s; of the other 2.5 s each. Median 2.25 s, 0.5 s apart.
    runs = Runs([Run([9.0, 9.0, 1.0, 3.0, 2.0]), Run([9.0, 9.0, 2.5, 2.5, 2.5])])
    assert runs.iteration_s == 2.25 and runs.spread == pytest.approx(0.5 / 2.25)


def printed(folder, *texts):
    for rank, text in enumerate(texts):
        (folder / f"rank{rank}.out").write_text(text)
    return read_times(str(folder), len(texts), LaunchResult())


def test_times_are_read_from_among_what_ranks_print(tmp_path):
    first = 'hello\nTIMES {"iter_s": [1, 2, 3.5]}\nRESULT {"losses": [0.5]}\n'
    run = printed(tmp_path, first, 'TIMES {"iter_s": [2, 1, 3]}')
    assert run.iter_s == [2, 2, 3.5] and run.result == {"losses": [0.5]} and run.iteration_s == 3.5


@pytest.mark.parametrize(("text", "said"), [
    ("", "rank 1 printed no line TIMES"), ("TIMES nothing", "a JSON object"), ("TIMES [1]", "a JSON object"),
    ("TIMES {}", "iter_s = None"), ('TIMES {"iter_s": [1, "2", 3]}', "a list of seconds above 0"),
    ('TIMES {"iter_s": [1, NaN, 3]}', "seconds above 0"), ('TIMES {"iter_s": [1, 2, true]}', "seconds above 0"),
    ('TIMES {"iter_s": [1, 2]}', "iter_s of 2, 3 iterations"), ("TIMES " + "[" * 100_000, "a JSON object"),
])  # fmt: skip
def test_times_that_are_none_are_refused(tmp_path, text, said):
    with pytest.raises(LaunchError, match=said.replace("[", r"\[")) as raised:
        printed(tmp_path, 'TIMES {"iter_s": [1, 2, 3]}', text)
    assert raised.value.exit_code == 3


def test_a_sleep_of_a_rank_ends_not_before_its_time(processes):
    code, out, err = processes.run("-c", "import time; from prismllm.launch.steady import _punctual\n"
                                   "sleep = _punctual(time.sleep); begin = time.monotonic()\n"
                                   "sleep(0.002); sleep(0); print(time.monotonic() - begin >= 0.002)\n"
                                   "try: sleep(-1)\nexcept ValueError as wrong: print(wrong)")  # fmt: skip
    assert (code, out.split("\n")[0]) == (0, "True") and "non-negative" in out, err
