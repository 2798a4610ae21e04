"""prism time on several hosts: here they are processes of one machine, each with one slot."""

import contextlib
import json
import os
import re
import subprocess
import sys

import pytest

import prismllm
from prismllm.timing.running import Slices
from prismllm.trace import diff

TOKEN = b"a token of some length"
LIMIT_S = 90

# No rank ends before all have begun: one slice must run on each host at the same time.
TOGETHER = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world, folder = dist.get_rank(), dist.get_world_size(), sys.argv[1]
open(os.path.join(folder, str(rank)), "w").close()
for _ in range(6000):
    if len(os.listdir(folder)) == world and "wait" not in sys.argv:
        break
    time.sleep(0.01)
else:
    raise TimeoutError("the others have not begun")
print("SAW ALL", rank, flush=True)
for step in range(3):
    dist.all_reduce(torch.ones(100))
"""

CHECKED = """
import time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(4):
    time.sleep(0.004 * (rank + 1))
    x = torch.ones(10)
    dist.all_reduce(x)
    assert x[0] == world
"""


@pytest.fixture
def job(tmp_path):
    """Starts `prism time TRACE` with agents; returns (exit code, what was said) of all, the head's first."""
    (tmp_path / "token").write_bytes(TOKEN)
    (tmp_path / "token").chmod(0o600)

    def run(trace, *options, agents=2, words=(), meanwhile=lambda agents: None):
        prism = [sys.executable, "-m", "prismllm"]
        shared = {"cwd": tmp_path, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with contextlib.ExitStack() as stack:
            head = stack.enter_context(subprocess.Popen(
                [*prism, "time", trace, "--slots", "1", "--agents", str(agents), "--token-file", "token", "--listen",
                 "127.0.0.1:0", "--json", "time.json", "-o", "timed.prism", *map(str, options), *map(str, words)],
                text=True, **shared))  # fmt: skip
            stack.callback(head.kill)
            first = head.stdout.readline()
            port = re.search(r"listening on 127\.0\.0\.1:(\d+) for", first)[1]
            others = []
            for number in range(agents):
                log = stack.enter_context(open(tmp_path / f"agent{number}.txt", "w+"))
                others.append(stack.enter_context(subprocess.Popen(
                    [*prism, "agent", "--connect", f"127.0.0.1:{port}", "--token-file", "token", "--slots", "1"],
                    **shared | {"stdout": log})))  # fmt: skip
                stack.callback(others[-1].kill)
            meanwhile(others)
            said = [first + head.communicate(timeout=LIMIT_S)[0]]
            codes = [process.wait(LIMIT_S) for process in (head, *others)]
            said += [(tmp_path / f"agent{number}.txt").read_text() for number in range(agents)]
            return codes, said

    return run


def test_slices_run_at_the_same_time_on_hosts_that_are_free(job, captured, tmp_path):
    for name in ("capture", "time"):
        (tmp_path / name).mkdir()
    trace, *_ = captured(TOGETHER, world=3, arguments=["capture"])
    codes, said = job(trace.path, words=["program.py", "time"])
    assert codes == [0, 0, 0], said
    assert sorted(re.findall(r"SAW ALL (\d)", said[0])) == ["0", "1", "2"]
    assert all("runs slices of the 3 ranks of program.py" in one for one in said[1:])
    assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)
    summary = json.loads((tmp_path / "time.json").read_text())
    assert summary["hosts"] == 3 and summary["slices"] == [[0], [1], [2]]


def test_every_host_answers_from_the_recording_that_one_has_made(job, captured, tmp_path):
    """A rank fails wherever it is, all are captured at the head, and all hosts take part again."""
    trace, *_ = captured(CHECKED, world=4)
    codes, said = job(trace.path)
    assert codes == [0, 0, 0], said
    assert said[0].count("Captured again, to see what the peers send") == 1
    assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)
    summary = json.loads((tmp_path / "time.json").read_text())
    assert summary["values"] == "recorded"
    for row in summary["ranks"]:
        assert row["median_s"] >= 0.004 * (row["rank"] + 1)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("prism-time")]


def test_a_host_that_is_lost_ends_the_run(job, captured, tmp_path):
    for name in ("capture", "time"):
        (tmp_path / name).mkdir()
    trace, *_ = captured(TOGETHER, world=3, arguments=["capture"])

    def kill_one(agents):
        """When each host has begun its rank."""
        for _ in range(LIMIT_S * 20):
            if len(list((tmp_path / "time").iterdir())) == 3:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                agents[0].wait(0.05)
        agents[0].kill()

    codes, said = job(trace.path, words=["program.py", "time", "wait"], meanwhile=kill_one)
    assert codes[0] == 4 and re.search(r"host \S+ is lost", said[0]), said
    assert codes[2] != 0
    assert not (tmp_path / "timed.prism").exists()


def test_what_an_agent_cannot_see_it_says(tmp_path, monkeypatch):
    from prismllm.launch import LaunchError, RunFolder
    from prismllm.launch.hosts import agent_slices
    from prismllm.launch.hosts.job import Means

    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("")
    values = {"inputs": "builtin", "quick": True, "played": "/nowhere/data", "played_whole_numbers": False}
    job = {"program": {"name": "program.py", "is_module": False, "args": []}, "digest": None, "folder": str(tmp_path),
           "slices": values}  # fmt: skip
    with pytest.raises(LaunchError, match="the recording '/nowhere/data' of the head cannot be seen here"):
        agent_slices.slice_options(job, Means(1), RunFolder(str(tmp_path)), -1)


def test_an_end_right_behind_a_slice_is_read_as_two_answers():
    read, write = os.pipe()
    os.write(write, b"[0, 1]\n[]\n")
    slices = Slices(read, lambda _: None)
    assert (slices.batch(), slices.batch()) == ([0, 1], [])
    os.close(read), os.close(write)
