"""prism time: each rank's own computation, slice by slice, with everybody else virtual."""

import json

import numpy as np
import pytest

import prismllm
from prismllm.cli.time_inputs import recorded_program
from prismllm.replay import replay
from prismllm.timing import plan, repetitions, warm_up
from prismllm.trace import diff

# Rank r computes for 4 * (r + 1) ms in each of `steps` iterations, then gradients are reduced and passed on.
SLEEPS = """
import sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
    import prismllm
    prismllm.iteration()
    time.sleep(0.004 * (rank + 1))
    gradients = torch.ones(1000)
    dist.all_reduce(gradients)
    passed = [dist.irecv(torch.empty(10), (rank - 1) % world)]
    dist.send(torch.ones(10), (rank + 1) % world)
    for work in passed:
        work.wait()
"""


def time(run_prism, trace, *options, words=(), code=0):
    done = run_prism("time", trace, "--json", "time.json", *options, *words)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def told(tmp_path):
    return lambda: json.loads((tmp_path / "time.json").read_text())


def test_a_rank_has_its_own_spans_and_nothing_of_what_others_take(run_prism, captured, told, tmp_path):
    trace, *_ = captured(SLEEPS, world=3)
    time(run_prism, trace.path, "-o", "timed.prism", "--slots", 2, "--warmup", 1)
    summary = told()
    assert summary["repetitions"] == 3 and summary["warmup_iterations"] == 1 and summary["untimed"] == []
    assert sorted(rank for one in summary["slices"] for rank in one) == [0, 1, 2]
    timed = prismllm.load(tmp_path / "timed.prism")
    assert timed.timed and diff(trace, timed) == (True, None)
    assert timed.metadata["timing"] == {"method": "slices", "warmup_iterations": 1, "slices": summary["slices"]}
    assert len(set(timed.metadata["clock_domain"])) == 3  # each slice has a clock of its own
    for rank in range(3):
        columns = timed.rank(rank)
        assert not columns.duration_ns[~columns.is_kind("compute")].any()
        each = repetitions(columns.mark_node, columns.node_kind, columns.node_lane, columns.duration_ns)
        assert (each >= 4_000_000 * (rank + 1)).all()  # what it slept, as long as no slot was needed for it
        row = summary["ranks"][rank]
        assert row["rank"] == rank and row["median_s"] == pytest.approx(float(np.median(each[1:-1])) * 1e-9)


def test_the_program_and_its_arguments_are_those_of_the_trace(run_prism, captured, told, tmp_path):
    trace, *_ = captured(SLEEPS, world=2, arguments=("3",))
    time(run_prism, trace.path, "-o", "a.prism")
    assert told()["repetitions"] == 1 and told()["warmup_iterations"] == 2
    time(run_prism, trace.path, "-o", "b.prism", words=("program.py", "3"))
    assert diff(prismllm.load(tmp_path / "a.prism"), prismllm.load(tmp_path / "b.prism")) == (True, None)
    assert (tmp_path / "b.prism").exists()


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (["job.py", "-m", "x"], (["job.py", "-m", "x"], False)),
        (["-m", "package.job", "3"], (["package.job", "3"], True)),
        (["/usr/bin/python3.11", "-u", "job.py", "3"], (["job.py", "3"], False)),
        (["python", "-X", "dev", "-m", "package.job"], (["package.job"], True)),
        (["python"], ([], False)), ([3], ([], False)), ("job.py", ([], False)), (None, ([], False)),
    ],
)  # fmt: skip
def test_the_program_is_found_in_what_a_trace_says(recorded, found):
    assert recorded_program(recorded) == found


def test_a_module_is_timed_as_it_was_captured(run_prism, tmp_path, told):
    (tmp_path / "job.py").write_text(SLEEPS)
    assert run_prism("capture", "-n", 2, "--slots", 2, "-o", "job.prism", "-m", "job").returncode == 0
    time(run_prism, "job.prism", "-o", "timed.prism")
    assert told()["slices"] == [[0, 1]]


def test_another_structure_is_refused_with_the_first_difference(run_prism, captured, tmp_path):
    trace, *_ = captured(SLEEPS, world=2, arguments=("3",))
    done = time(run_prism, trace.path, "-o", "timed.prism", "--inputs", "builtin", words=("program.py", "2"), code=3)
    assert "does not do what the trace says: different in rank 0" in done.stderr
    assert not (tmp_path / "timed.prism").exists()


# What a rank receives decides how much it sends: two of the three words say so.
ROUTED = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(3):
    send = torch.tensor([rank + 1] * world)
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send)
    out = torch.empty(int(receive.sum()), 8)
    dist.all_to_all_single(out, torch.ones(int(send.sum()), 8), receive.tolist(), send.tolist())
"""


def test_where_peers_decide_the_structure_it_is_captured_what_they_send(run_prism, captured, told, tmp_path):
    trace, *_ = captured(ROUTED, world=3)
    done = time(run_prism, trace.path, "-o", "timed.prism")
    assert "Captured again, to see what the peers send" in done.stderr
    assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)
    # The same with what a capture has kept.
    kept, *_ = captured(ROUTED, "--data", tmp_path / "data", world=3)
    done = time(run_prism, kept.path, "-o", "again.prism", "--data", tmp_path / "data")
    assert "Captured again" not in done.stderr
    assert diff(trace, prismllm.load(tmp_path / "again.prism")) == (True, None)


# Messages of real numbers, about which nobody is asked, and of whole ones that decide a size, on the same way.
MIXED = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    size = torch.tensor([step + 1 if rank == 0 else 0])
    if rank == 0:
        dist.send(torch.ones(4), 1)
        dist.send(size, 1)
    else:
        dist.recv(torch.empty(4), 0)
        dist.recv(size, 0)
    dist.all_reduce(torch.ones(int(size)))
"""


def test_a_message_has_its_number_among_all_that_its_peer_sends(run_prism, captured, tmp_path):
    trace, *_ = captured(MIXED, world=2)
    done = time(run_prism, trace.path, "-o", "timed.prism")
    assert "Captured again, to see what the peers send" in done.stderr
    assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)


def test_what_is_made_up_is_nothing_that_programs_stumble_over(run_prism, captured, repository, tmp_path):
    """A norm of gradients that is zero, say, where zeros came from the stage before."""
    trace, *_ = captured(repository / "examples/gpt3d.py", world=4, arguments=("--tp", 1, "--pp", 2, "--steps", 3))
    time(run_prism, trace.path, "-o", "timed.prism")
    assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)


def test_one_of_a_class_is_timed_for_all_of_it(run_prism, captured, told, tmp_path):
    # Ranks with the same computation are of one class here: pairs pass nothing on.
    alike = SLEEPS.replace("0.004 * (rank + 1)", "0.004").replace("(rank - 1) % world", "rank ^ 1").replace(
        "(rank + 1) % world", "rank ^ 1")  # fmt: skip
    trace, *_ = captured(alike, world=4)
    assert trace.class_count == 1
    time(run_prism, trace.path, "-o", "timed.prism", "--by-class", 1)
    assert told()["untimed"] == [1, 2, 3] and told()["split"] == []
    timed = prismllm.load(tmp_path / "timed.prism")
    assert diff(trace, timed) == (True, None)
    assert (timed.rank(0).duration_ns == timed.rank(3).duration_ns).all()


def test_all_of_a_class_are_timed_where_its_members_differ_and_else_those_that_were_asked_for(
    run_prism, captured, told
):
    straggler = SLEEPS.replace("0.004 * (rank + 1)", "0.004 + 0.050 * (rank == 1)").replace(
        "(rank - 1) % world", "rank ^ 1").replace("(rank + 1) % world", "rank ^ 1")  # fmt: skip
    trace, *_ = captured(straggler, world=4)
    assert trace.class_count == 1
    time(run_prism, trace.path, "-o", "timed.prism", "--by-class", 2, "--warmup", 1)
    # How much a rank differs from itself is this machine's affair (what follows from it: test_time_classes.py).
    assert (told()["split"], told()["untimed"]) in (([0], []), ([], [2, 3]))
    assert told()["ranks"][1]["median_s"] >= 0.054


def test_some_ranks_are_timed_onto_the_times_of_the_others(run_prism, captured, told, tmp_path):
    trace, *_ = captured(SLEEPS, world=3)
    time(run_prism, trace.path, "-o", "first.prism")
    time(run_prism, trace.path, "-o", "second.prism", "--only", "1", "--onto", "first.prism")
    first, second = (prismllm.load(tmp_path / f"{name}.prism") for name in ("first", "second"))
    assert [row["rank"] for row in told()["ranks"]] == [1]
    for rank, same in ((0, True), (1, False), (2, True)):
        assert (first.rank(rank).duration_ns == second.rank(rank).duration_ns).all() == same
    assert sorted(r for one in second.metadata["timing"]["slices"] for r in one) == [0, 1, 2]
    assert diff(first, second) == (True, None)


def test_a_calibrated_trace_is_computed_again_downstream_of_a_rank_timed_again(run_prism, captured, told, tmp_path):
    trace, *_ = captured(SLEEPS, world=3)
    time(run_prism, trace.path, "-o", "timed.prism")
    assert run_prism("calibrate", "timed.prism", "-o", "cal.prism").returncode == 0
    time(run_prism, trace.path, "-o", "again.prism", "--only", "2", "--onto", "cal.prism")
    again, before = (prismllm.load(tmp_path / f"{name}.prism") for name in ("again", "cal"))
    assert diff(before, again) == (True, None)
    compute = again.rank(0).is_kind("compute")
    assert (again.rank(0).duration_ns[compute] == before.rank(0).duration_ns[compute]).all()
    assert (again.rank(2).duration_ns[compute] != before.rank(2).duration_ns[compute]).any()
    assert 0 < told()["visited"] <= told()["nodes"]
    # Each iteration ends when the slowest rank has computed, rank 2.
    assert all(one["time_s"] >= 0.012 for one in told()["iterations"])
    assert replay(again).iterations[0].time_s == pytest.approx(told()["iterations"][0]["time_s"], abs=1e-6)


def test_the_plan_puts_together_who_talks_most(run_prism, captured, told):
    # A message of 10 numbers around the ring, and a megabyte between 0 and 2, 1 and 3.
    talk = (
        SLEEPS
        + """
    dist.send(torch.ones(250_000), rank ^ 2) if rank < 2 else dist.recv(torch.empty(250_000), rank ^ 2)
"""
    )
    trace, *_ = captured(talk, world=4)
    assert plan(trace, range(4), 2) == [[0, 2], [1, 3]]
    assert plan(trace, range(4), 4) == [[0, 1, 2, 3]]
    assert plan(trace, [1, 2, 3], 2) == [[1, 3], [2]]
    time(run_prism, trace.path, "--plan", "--slots", 2)
    assert told() == {"slices": [[0, 2], [1, 3]]}
    time(run_prism, trace.path, "-o", "timed.prism", "--slices", "3,0-2", "--slots", 2)
    assert told()["slices"] == [[3], [0, 1, 2]]


def test_repeated_slices_keep_the_run_of_median_computation(run_prism, captured, told):
    trace, *_ = captured(SLEEPS, world=2)
    time(run_prism, trace.path, "-o", "timed.prism", "--repeat", 3)
    assert [row["median_s"] >= 0.004 * (row["rank"] + 1) for row in told()["ranks"]] == [True, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--slices", "0,0-1"), "rank 0 is in two slices; accepted: each rank once"),
        (("--slices", "0"), "--slices: rank 1 is in none"),
        (("--slices", "0-2"), "--slices: rank 2 is not in the job; accepted: 0 to 1"),
        (("--only", "0"), "--only times some ranks and --onto has the times of the others; give both"),
        (("--slices", "0-1", "--by-class", "1"), "--slices names the ranks already"),
        (("--comm", "program.py"), "--comm is for a trace of --onto that was calibrated on a network"),
        (("--inputs", "absent.py"), "--inputs: there is no file 'absent.py'"),
        (("--data", "."), "--data: cannot open ./index.prismdata: No such file"),
    ],
)
def test_wrong_use_is_told_at_once(run_prism, captured, options, said):
    trace, *_ = captured(SLEEPS, world=2)
    assert said in time(run_prism, trace.path, *options, code=2).stderr


def test_times_of_a_bare_trace_are_nothing_to_put_others_onto(run_prism, captured):
    trace, *_ = captured(SLEEPS, world=2)
    done = time(run_prism, trace.path, "--only", "0", "--onto", trace.path, "-o", "timed.prism", code=2)
    assert "has no times; accepted: a trace that prism time has written" in done.stderr


def test_times_of_another_structure_are_refused_before_anything_runs(run_prism, captured, tmp_path):
    trace, *_ = captured(SLEEPS, world=2, arguments=("3",))
    time(run_prism, trace.path, "-o", "three.prism")
    four, *_ = captured(SLEEPS, world=2, arguments=("4",))
    done = time(run_prism, four.path, "--only", "0", "--onto", "three.prism", "-o", "x.prism", code=2)
    assert "--onto: three.prism is of another structure: different in rank 0" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_trace_that_is_missing_or_none(run_prism, tmp_path):
    order = run_prism("time", "--slots", 2, "job.prism", "-o", "x.prism")
    assert order.returncode == 2 and "all options behind TRACE, or all before it" in order.stderr
    assert "the trace is missing" in run_prism("time", "--slots", 2).stderr
    assert "there is no trace 'absent.prism'" in run_prism("time", "absent.prism").stderr


def test_repetitions_are_what_is_computed_between_marks():
    compute, issue, wait = (prismllm._graph.NODE_KINDS.index(kind) for kind in ("compute", "issue", "wait"))
    kinds = np.array([compute, issue, compute, wait, compute, compute])
    lanes = np.array([0, 0, 0, 0, 0, 1])
    took = np.array([5, 100, 7, 100, 11, 100])
    assert repetitions(np.array([0, 2]), kinds, lanes, took).tolist() == [5, 18]
    assert repetitions(np.array([], int), kinds, lanes, took).tolist() == [23]
    assert [warm_up(n) for n in (1, 2, 3, 8)] == [0, 1, 2, 2] and warm_up(8, 0) == 0 and warm_up(2, 5) == 1
