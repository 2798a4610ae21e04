"""`prism validate`: real runs beside predictions that have not seen them."""

import json
import math
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from small_traces import MS, Recording, build, data_parallel

import prismllm
from prismllm.cli.validate import _place
from prismllm.comm import CommModel, Place
from prismllm.launch import LaunchError, Program
from prismllm.validate import Execution, Prediction, StepFailed, Steps, losses, table, to_tsv
from prismllm.validate.comparison import shortened
from prismllm.validate.plan import usual_hosts
from prismllm.validate.printed import apart

CLOCK = {"metadata": {"clock_domain": "one", "program": ["train.py"]}}


def executions(*compute_ms, losses=None):
    """Ranks compute, issue for 1 ms, and meet in an all-reduce of 2 ms; six iterations, of which 2 to 4 count."""
    return [Execution.of(data_parallel(own, 6, **CLOCK), losses) for own in compute_ms]


def rows_of(real, predictions, sandbox=()):
    return {(row.figure, row.of): row for row in table(real, predictions, sandbox)}


# Iterations of 143, 145 and 144 ms.
REAL = ([100, 140], [100, 142], [100, 141])


def test_an_error_stands_beside_the_spread_of_the_real_runs():
    (told,) = executions([100, 150])
    rows = rows_of(executions(*REAL), {"calibrated": Prediction(told)})
    whole = rows["iteration", "slowest of all ranks"]
    assert whole.real == pytest.approx(0.144) and whole.spread == pytest.approx(2 / 144)
    assert whole.predicted["calibrated"].value == pytest.approx(0.153)
    assert whole.predicted["calibrated"].error == pytest.approx(9 / 144)
    assert whole.bound == whole.spread and not whole.ok
    # Of 6 starts (a span, an issue and a wait of each rank) those of rank 1's issue and wait are 9 ms late.
    starts = rows["span starts", "p95 of all ranks"]
    assert starts.predicted["calibrated"].error == pytest.approx(9 / 144) and starts.spread == pytest.approx(2 / 144)
    # Of two spans of 100 and 141 ms one is 9 ms longer: 95% of the way from the one error to the other.
    spans = rows["span durations", "p95 of all ranks"]
    assert spans.predicted["calibrated"].error == pytest.approx(0.95 * 9 / 141)
    # Rank 0 waits for rank 1, 41 ms and 50 ms, rank 1 for nobody.
    waiting = rows["waiting", "all_reduce, all 2 ranks"]
    assert waiting.real == pytest.approx(0.041 / 2) and waiting.predicted["calibrated"].value == pytest.approx(0.025)
    assert waiting.predicted["calibrated"].error == pytest.approx((25 - 20.5) / 144)
    assert rows["peak memory", "rank 1"].real == 4005 and rows["peak memory", "rank 1"].ok
    assert rows["same structure", "all ranks"].ok


def test_what_is_within_one_percent_or_the_spread_is_ok():
    near, within, beyond = executions([100, 142], [100, 143], [100, 144])
    real = executions([100, 141], [100, 141])
    verdicts = [rows_of(real, {"calibrated": Prediction(one)}) for one in (near, within, beyond)]
    assert [rows["iteration", "slowest of all ranks"].ok for rows in verdicts] == [True, False, False]
    far_apart = rows_of(executions([100, 139], [100, 143]), {"calibrated": Prediction(within)})
    assert far_apart["iteration", "slowest of all ranks"].bound == pytest.approx(4 / 144)
    assert all(row.ok for row in far_apart.values())


def test_the_iteration_is_that_of_all_sampled_executions():
    (told,) = executions([100, 150])
    rows = rows_of(executions(*REAL), {"calibrated": Prediction(told, 0.144)})
    assert rows["iteration", "slowest of all ranks"].ok and not rows["iteration", "rank 0"].ok


def emulated(compute_ms, ranks):
    """What `prism emulate` writes: the ranks that ran for real, and nothing of the others."""
    whole = data_parallel(compute_ms, 6, **CLOCK)
    graph = prismllm._graph.Builder(len(compute_ms), timed=True, metadata_json=json.dumps(CLOCK["metadata"]))
    for rank in ranks:
        recording = Recording(rank, [("default_pg", list(range(len(compute_ms))))])
        length = (max(compute_ms) + 3) * MS
        for i in range(6):
            recording.mark()
            recording.compute(compute_ms[rank] * MS, name="forward" if i == 0 else "")
            recording.hold(1000 * (rank + 1) + i, 2000 * (rank + 1) + i)
            end = (i + 1) * length
            recording.wait(*recording.issue("all_reduce", 0, 4096, end, MS), end)
        graph.add(recording.record())
    trace = prismllm.trace.Trace(graph.finish())
    assert whole.rank(ranks[0]).start_ns.tolist() == trace.rank(ranks[0]).start_ns.tolist()
    return trace


def test_emulated_ranks_are_compared_with_themselves_and_decide():
    real = executions([100, 120, 140], [100, 120, 140])
    calibrated = Prediction(executions([100, 120, 150])[0])
    alone = Prediction(Execution.of(emulated([100, 120, 140], [0, 1])))
    rows = rows_of(real, {"calibrated": calibrated, "emulated": alone}, (0, 1))
    whole, chosen = rows["iteration", "slowest of all ranks"], rows["iteration", "slowest of ranks 0-1"]
    assert list(whole.predicted) == ["calibrated"] and not whole.ok
    assert chosen.predicted["emulated"].error == pytest.approx(0) and chosen.ok
    assert chosen.predicted["calibrated"].error == pytest.approx(10 / 143)
    assert rows["iteration", "rank 0"].ok and not rows["iteration", "rank 2"].ok
    assert rows["span starts", "p95 of ranks 0-1"].ok and not rows["span starts", "p95 of all ranks"].ok
    assert [shortened(ranks) for ranks in ([3], [0, 1, 2, 5, 7, 8])] == ["rank 3", "ranks 0-2,5,7-8"]
    lines = to_tsv(list(rows.values())).splitlines()
    assert lines[0].split("\t")[-6:] == ["calibrated", "calibrated_error", "calibrated_ok", "emulated",
                                         "emulated_error", "emulated_ok"]  # fmt: skip
    assert len({line.count("\t") for line in lines}) == 1 and len(lines) == 1 + len(rows)


def with_checkpoints(every, checkpoint_ms, iterations=9):
    """A rank whose iterations end with a checkpoint every so often; the last one is closed by a mark."""
    r = Recording(0, [("default_pg", [0])])
    for i in range(iterations):
        r.mark()
        r.compute(10 * MS)
        r.wait(*r.issue("all_reduce", 0, 4, r.now + 2 * MS), r.now + 2 * MS)
        if i % every == 0:
            r.wait(*r.issue("barrier", 0, 0, r.now + checkpoint_ms * MS), r.now + checkpoint_ms * MS)
    r.mark()
    r.compute(0)
    return Execution.of(build([r], metadata=CLOCK["metadata"]))


def test_iterations_of_another_structure_are_compared_among_themselves():
    run = with_checkpoints(3, 5)
    assert run.counted == range(2, 9)
    places = run.places[0]
    assert [one.tolist() for one in places.iterations] == [[2, 4, 5, 7, 8], [3, 6]]
    assert places.weight.tolist() == [5 / 7] * 3 + [2 / 7] * 5
    rows = rows_of([run, run], {"calibrated": Prediction(with_checkpoints(3, 6))})
    # Of three waits (one without and two with a checkpoint) one is 1 ms longer; the median iteration takes 12 ms.
    assert rows["waits", "p95 of all ranks"].predicted["calibrated"].error == pytest.approx(0.9 / 12)
    assert rows["span starts", "p95 of all ranks"].predicted["calibrated"].error == 0
    assert rows["iteration", "slowest of all ranks"].predicted["calibrated"].error == 0
    other = rows_of([run, run], {"calibrated": Prediction(with_checkpoints(2, 5))})
    assert not other["same structure", "all ranks"].ok and ("span starts", "p95 of all ranks") not in other


def test_ranks_on_several_clocks_begin_each_by_itself():
    one = Execution.of(data_parallel([100, 140], 6, **CLOCK))
    several = Execution.of(data_parallel([100, 140], 6, metadata={"clock_domain": ["a", "b"]}))
    later = one.timelines[0].bounds_ns[:5]
    one.timelines[1].bounds_ns[:] += 5 * MS
    several.timelines[1].bounds_ns[:] += 5 * MS
    assert (one.begins_ns([0, 1], 1) == later).all() and (several.begins_ns([0, 1], 1) == later + 5 * MS).all()


@pytest.mark.parametrize(("iterations", "said"), [(0, "has no iterations; prismllm.iteration()"),
                                                  (2, "2 iterations; accepted: at least 3")])  # fmt: skip
def test_a_program_that_is_too_short_is_refused(iterations, said):
    r = Recording(0, [("default_pg", [0])])
    r.compute(MS)
    for _ in range(iterations):
        r.mark()
        r.wait(*r.issue("all_reduce", 0, 4, r.now + MS), r.now + MS)
    with pytest.raises(ValueError, match=said):
        Execution.of(build([r]))


def test_losses_agree_to_a_millionth_or_to_the_spread():
    def told(value, **others):
        return executions([100, 140], losses={0: [2.0, value], **others})[0]

    def row(real, predicted):
        return rows_of(real, {"calibrated": Prediction(predicted)})["losses", "rank 0"]

    near = row([told(1.0), told(1.0)], told(1.0 + 9e-7))
    assert near.ok and near.predicted["calibrated"].error == pytest.approx(9e-7, rel=1e-3) and near.real == 1.0
    assert not row([told(1.0), told(1.0)], told(1.0 + 2e-6)).ok
    assert row([told(1.0), told(1.0 + 3e-6)], told(1.0 + 2e-6)).ok
    assert not row([told(1.0)], executions([100, 140])[0]).ok
    assert apart([1.0, math.nan], [1.0, math.nan]) == 0
    assert apart([1.0], [1.0, 2.0]) == apart([1.0], [math.nan]) == math.inf
    assert apart([0.0], [-0.0]) == 0 and apart([0.0], [1e-9]) == 1


def test_losses_are_found_in_what_ranks_print(tmp_path):
    (tmp_path / "rank0.out").write_text('step 0 loss 2.5\nRESULT {"job": "x", "losses": [2.5, 1]}\nstep 1 loss 1e-3\n')
    (tmp_path / "rank1.out").write_text('RESULT {"loss": 3}\n')
    (tmp_path / "rank2.out").write_text("step 0 loss low\n")
    assert losses(str(tmp_path)) == {0: [2.5, 1.0], 1: [3.0]}
    assert losses(str(tmp_path), r"loss ([0-9.e-]+)$") == {0: [2.5, 0.001]}
    with pytest.raises(LaunchError, match=r"rank 2 printed a loss that is none: .*'low'"):
        losses(str(tmp_path), r"loss (\S+)")
    (tmp_path / "rank1.out").write_text('RESULT {"losses": ["low"]}\n')
    with pytest.raises(LaunchError, match=r"rank 1 printed losses \['low'\]; accepted: numbers"):
        losses(str(tmp_path))


def test_ranks_fill_up_to_8_hosts_evenly():
    assert [usual_hosts(ranks) for ranks in (1, 4, 8, 16, 12, 7, 11, 100)] == [1, 4, 8, 8, 6, 7, 11, 5]


# ---- The command.

# Each rank computes for 4 ms and more in six iterations; whoever is asked leaves word of it in a file.
JOB = """
import json, os, sys, time, torch
import torch.distributed as dist
import prismllm
dist.init_process_group("gloo")
rank = dist.get_rank()
losses = []
for step in range(6):
    prismllm.iteration()
    time.sleep(0.004 * (rank + 1))
    total = torch.full((100,), float(rank + step))
    dist.all_reduce(total)
    losses.append(total.mean().item())
if rank == 0:
    print("RESULT " + json.dumps({"losses": losses}))
"""
MODEL = CommModel(message_s=30e-6, operation_s=60e-6, bytes_per_second=1e9, burst_bytes=30e3, delay_s=10e-6)


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "model.toml").write_text(MODEL.to_toml(Place(2, 1), 2, "test", "Measured by hand."))
    return ("-n", 2, "--loopback", "--repeat", 2, "--comm", "model.toml", "--ranks", 0)


def test_the_predicted_side_does_not_need_the_real_runs(job, tmp_path):
    """They are deleted before it starts, and the table is complete. Without --run-dir nothing else is left."""
    (tmp_path / "deletes.py").write_text("""
import os, shutil
import prismllm.validate as validate
from prismllm.cli import main
predicted = validate.predicted
def without(plan, steps):
    assert sorted(os.listdir(steps.path("real"))) == ["1.logs", "1.prism", "2.logs", "2.prism"]
    shutil.rmtree(steps.path("real"))
    made = predicted(plan, steps)
    assert not os.path.exists(steps.path("real"))
    return made
validate.predicted = without
main()
""")
    (tmp_path / "tmp").mkdir()
    words = ["deletes.py", "validate", *job, "--json", "told.json", "job.py"]
    done = subprocess.run([sys.executable, *map(str, words)], cwd=tmp_path, capture_output=True, text=True,
                          timeout=600, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")})  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert done.returncode == (0 if told["ok"] else 1) and "verdict" in done.stdout
    assert told["real"].keys() >= {"iteration_time_s", "spread"} and told["real"]["iteration_time_s"] >= 0.008
    assert told["calibrated"]["iteration_time_s"] >= 0.008 and told["emulated"]["iteration_time_s"] >= 0.008
    assert told["sandbox"] == [0] and told["compared"] == "emulated"
    assert told["error"].keys() == {"iteration", "span_start", "memory_bytes", "loss"}
    assert told["error"]["loss"] == 0 and told["error"]["memory_bytes"] == 0 and told["error"]["span_start"] >= 0
    assert told["ok"] == all(row["ok"] for row in told["table"])
    assert {row["figure"] for row in told["table"]} == {
        "iteration", "same structure", "span starts", "span durations", "waits", "waiting", "losses", "peak memory",
    }  # fmt: skip
    lines = (tmp_path / "job.validate.tsv").read_text().splitlines()
    assert lines[0].startswith("figure\tof\tunit") and len(lines) == 1 + len(told["table"])
    assert os.listdir(tmp_path / "tmp") == []


def test_steps_that_were_finished_the_same_way_are_not_done_again(tmp_path):
    trace, program, rules = (tmp_path / name for name in ("a.prism", "job.py", "rules.toml"))
    data_parallel([3, 5]).write(trace)
    program.write_text("1")
    rules.write_text("1")

    def done(*, ranks="all"):
        said = []
        with Steps(str(tmp_path / "run"), Program(str(program)), said.append) as steps:
            for step, needs in (("first", ()), ("second", ("first",)), ("apart", ())):
                out = steps.path(step, "told.json")
                words = ["info", trace] if step != "second" or ranks == "all" else ["replay", trace]
                reads = [str(rules)] if step == "apart" else []
                steps.run(step, [*words, "--json", out], [f"{step}/told.json"], needs, reads)
                assert json.loads(Path(out).read_text())
        return [text.partition(":")[0] for text in said if not text.endswith("found finished")]

    assert done() == ["first", "second", "apart"]
    assert done() == []
    assert done(ranks="other") == ["second"]
    (tmp_path / "run/first/told.json").unlink()
    assert done(ranks="other") == ["first", "second"]  # what needs it is done again
    rules.write_text("2")
    assert done(ranks="other") == ["apart"]
    program.write_text("2")
    assert done(ranks="other") == ["first", "second", "apart"]


def test_a_step_that_fails_is_named_and_its_folder_kept(job, run_prism, tmp_path):
    (tmp_path / "job.py").write_text(JOB.replace("losses = []", "if rank: raise RuntimeError('no device')"))
    done = run_prism("validate", *job, "--run-dir", "run", "job.py", timeout=600)
    assert done.returncode == 3
    assert "real run 1 failed: rank 1 failed:" in done.stderr and "no device" in done.stderr
    assert f"(what was done is kept in {tmp_path / 'run'})" in done.stderr
    assert (tmp_path / "run/real/1.logs/rank1.err").exists()
    assert (tmp_path / "run/failed/real-run-1/launch.json").exists()
    assert not (tmp_path / "run/table.tsv").exists()


HANGS = """
import time, torch.distributed as dist
dist.init_process_group("gloo")
print("HANGS", flush=True)
time.sleep(3600)
"""


def left(mark):
    """Processes with this in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(entry)
        except OSError:
            continue
    return found


def none_left(mark, seconds):
    end = time.monotonic() + seconds
    while (found := left(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return not found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_processes(tmp_path, number):
    """Nor namespaces, where root has them: they end with the last process that is in them."""
    (tmp_path / "hangs.py").write_text(HANGS)
    mark = f"VALIDATE_TEST={secrets.token_hex(8)}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen([sys.executable, "-m", "prismllm", "validate", "-n", "2", "--run-dir", "run",
                                "hangs.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {name: value})  # fmt: skip
    log, end = tmp_path / "run/real/1.logs/rank1.out", time.monotonic() + 600
    while not (log.exists() and "HANGS" in log.read_text()):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == {signal.SIGKILL: -9}.get(number, 128 + number)
    # After SIGKILL, which nobody can follow, the step ends by itself.
    assert none_left(mark, 120 if number == signal.SIGKILL else 0)
    if number != signal.SIGKILL:
        assert "ended by a signal (what was done is kept in" in err


def test_a_step_that_takes_too_long_is_ended(tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    program = Program(str(tmp_path / "hangs.py"))
    with (
        Steps(str(tmp_path / "run"), program, lambda text: None, deadline_s=1.0) as steps,
        pytest.raises(StepFailed, match="real run 1 failed: it has not ended within 1 s") as raised,
    ):
        steps.run("real run 1", ["record", "-n", 2, "-o", steps.path("x.prism"), *program.words], ["x.prism"])
    assert raised.value.exit_code == 3


def test_a_folder_belongs_to_one_validation(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    program = Program(str(tmp_path / "job.py"))
    with (
        Steps(str(tmp_path / "run"), program, print),
        pytest.raises(OSError, match="in use by another run"),
        Steps(str(tmp_path / "run"), program, print),
    ):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with (
        pytest.raises(OSError, match="holds files that are not of an earlier"),
        Steps(tmp_path / "other", program, print),
    ):
        pass
    (tmp_path / "run/steps.json").write_text("[" * 100_000)
    with Steps(str(tmp_path / "run"), program, print) as steps:
        assert steps.finished == {}


@pytest.mark.parametrize(("words", "said"), [
    (("-n", 2, "--ranks", "0-2", "job.py"), "--ranks: rank 2 is not in the job; accepted: 0 to 1"),
    (("-n", 2, "--ranks", 0, "--no-emulation", "job.py"), "give it without --no-emulation"),
    (("-n", 2, "absent.py"), "there is no program 'absent.py'"),
    (("-n", 2, "--loopback", "--rate", "1gbit", "job.py"), "give it without --hosts and --rate"),
    (("-n", 3, "--hosts", 2, "job.py"), "--hosts 2 holds 3 ranks"),
    (("-n", 2, "--rate", "fast", "job.py"), "rate 'fast'; accepted"),
    (("-n", 2, "--loss-pattern", "loss", "job.py"), "has 0 groups; accepted: one"),
    (("-n", 2, "--loss-pattern", "(", "job.py"), "--loss-pattern: '('"),
    (("-n", 2, "--loopback", "-o", "nowhere/t.tsv", "job.py"), "-o: 'nowhere/t.tsv' cannot be written"),
    (("-n", 2, "--deadline", "nan", "--loopback", "job.py"), "--deadline: nan"),
    (("-n", 2, "--loopback", "--run-dir", "full", "job.py"), "holds files that are not of an earlier validation"),
    (("job.py",), "-n"),
])  # fmt: skip
def test_wrong_use_is_one_line(run_prism, tmp_path, words, said):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    done = run_prism("validate", *words)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_users_who_are_not_root_are_on_loopback_unless_they_ask_for_links(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    bed, notes = _place(2, None, None, False)
    assert bed is None and "on loopback, where links have no rate" in notes[0] and "needs root" in notes[0]
    for hosts, rate in ((None, "1gbit"), (2, None)):
        with pytest.raises(click.UsageError, match="the testbed needs root"):
            _place(2, hosts, rate, False)
