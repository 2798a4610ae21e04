"""prism time without a word about what peers send: programs that look at it are timed all the same."""

import json
import os
import signal
import stat

import pytest

import prismllm
from prismllm.inputs import played
from prismllm.trace import diff


@pytest.fixture
def timed(run_prism, captured, tmp_path):
    """Captures a program and times it; returns (its summary, what was said). Nothing may be left in the temporary
    folder."""
    left = tmp_path / "tmp"
    left.mkdir()

    def run(program, *options, world=2, code=0, words=(), arguments=()):
        trace, *_ = captured(program, world=world, arguments=arguments)
        done = run_prism("time", trace.path, "--slots", 2, "--json", "time.json", "-o", "timed.prism", *options, *words,
                         env=os.environ | {"TMPDIR": str(left)}, timeout=300)  # fmt: skip
        assert done.returncode == code, done.stderr
        assert not [name for name in os.listdir(left) if name.startswith("prism-time")]
        if code:
            return {}, done.stderr
        assert not os.listdir(left), done.stderr
        assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)
        return json.loads((tmp_path / "time.json").read_text()), done.stderr

    return run


LOOP = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(4):
    time.sleep(0.004 * (rank + 1))
"""


def test_where_nobody_looks_nothing_is_captured_again(timed):
    summary, said = timed(LOOP + "    dist.all_reduce(torch.ones(10))\n")
    assert summary["values"] == "made up" and "Captured again" not in said


def test_real_numbers_that_are_checked_are_those_of_the_job(timed):
    summary, said = timed(LOOP + "    x = torch.ones(10)\n    dist.all_reduce(x)\n    assert x[0] == world\n")
    assert summary["values"] == "recorded"
    assert said.count("Captured again, to see what the peers send") == 1
    assert "rank 0 failed: AssertionError" in said or "rank 1 failed: AssertionError" in said


def test_whole_numbers_are_tried_first(timed):
    """Real numbers then cost a rank nothing."""
    summary, _ = timed(
        LOOP + "    n = torch.tensor([rank])\n    dist.all_reduce(n)\n    assert n == world * (world - 1) / 2\n"
    )
    assert summary["values"] == "whole numbers"


def test_objects_of_peers_are_handed_on(timed):
    summary, _ = timed(
        LOOP
        + """
    everybody = [None] * world
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * 10 * rank})
    assert [(one["rank"], len(one["text"])) for one in everybody] == [(r, 10 * r) for r in range(world)]
    box = [None] * 2 if rank else ["a" * step, step]
    dist.broadcast_object_list(box)
    assert box == ["a" * step, step]
""",
        world=3,
    )
    assert summary["values"] == "whole numbers"


# An object says that it is unpickled by making a file. Peers do so in the job.
TELLING = """
import os, torch.distributed as dist
class Told:
    def __reduce__(self):
        return (open, (f"unpickled-{os.environ['WHERE']}", "w"))
dist.init_process_group("gloo")
box = [Told() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(box)
"""


def test_objects_of_a_folder_that_the_user_names_are_not_unpickled(run_prism, captured, tmp_path, monkeypatch):
    monkeypatch.setenv("WHERE", "capture")
    trace, *_ = captured(TELLING, "--data", tmp_path / "data", world=2)
    assert (tmp_path / "unpickled-capture").exists()
    (tmp_path / "unpickled-capture").unlink()
    done = run_prism("time", trace.path, "--data", tmp_path / "data", "-o", "timed.prism")
    assert done.returncode == 3 and "is None in the trace" not in done.stderr  # a smaller object in its place: None
    assert not list(tmp_path.glob("unpickled*"))


def test_what_is_handed_on_with_objects_is_private(tmp_path):
    (tmp_path / "data").mkdir(mode=0o755)
    with pytest.raises(ValueError, match="can be reached by others; accepted: a folder of this user's with mode 0700"):
        played.rule_of(str(tmp_path / "data"), whole_numbers=False)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o755


def test_receives_from_anybody_bring_one_message_of_each_peer(timed):
    summary, _ = timed(
        LOOP
        + """
    if rank:
        dist.send(torch.full((2,), float(rank)), 0)
        dist.send(torch.full((3,), 10.0 * rank), 0, tag=1)
    else:
        box = [torch.empty(2) for _ in range(world - 1)]
        sources = {dist.recv(one) for one in box}
        assert sources == set(range(1, world)) and {one[0].item() for one in box} == {1.0, 2.0}
        for peer in range(1, world):
            last = torch.empty(3)
            dist.recv(last, peer, tag=1)
            assert last[0] == 10 * peer
""",
        world=3,
    )
    assert summary["values"] == "recorded"


def test_what_ranks_tell_each_other_by_files_is_timed_among_peers(timed):
    """No recording holds it. A rank that waits for others does not compute meanwhile, a sleep counts. Rank 0 is timed
    before rank 1 has written anything."""
    summary, said = timed(
        LOOP
        + """
    path = f"told-{step}"
    time.sleep(0.5 if rank == 0 else 0)
    if rank == 1:
        open(path, "w").close()
    work = dist.all_reduce(torch.ones(10), async_op=True)
    while not work.is_completed():
        pass
    work.wait()
    if rank == 0:
        assert os.path.exists(path)
        os.remove(path)
""",
        "--slices",
        "0,1",
    )
    assert summary["values"] == "peers"
    assert said.count("Timed among its peers, all of which run now") == 1
    reader, writer = (row["median_s"] for row in summary["ranks"])
    assert writer >= 0.004 and reader >= 0.5
    assert writer < reader / 2  # rank 1 polls for rank 0 from then on


def test_keys_of_the_store_come_from_peers(timed):
    summary, said = timed(
        LOOP
        + """
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set(f"step{step}", "here")
    assert store.get(f"step{step}") == b"here"
    dist.barrier()
"""
    )
    assert summary["values"] == "peers"
    assert "Captured again" not in said  # a recording has no keys


def test_a_program_that_fails_among_its_peers_too_is_told_so(timed):
    _, said = timed(LOOP + "    assert len(sys.argv) == 1, 'too much'\n", words=("program.py", "more"), code=3)
    assert "AssertionError: too much" in said
    assert said.count("Captured again") == 1 and "Timed among" not in said


def test_a_rank_that_was_killed_is_no_reason_to_capture_again(timed):
    text = LOOP + f"    if len(sys.argv) > 1: os.kill(os.getpid(), {signal.SIGKILL:d})\n"
    _, said = timed(text, words=("program.py", "more"), code=3)
    assert "was killed by SIGKILL" in said and "Captured again" not in said


def test_rules_that_are_given_are_not_passed_over(timed):
    checks = LOOP + "    x = torch.ones(10)\n    dist.all_reduce(x)\n    assert x[0] == world\n"
    _, said = timed(checks, "--inputs", "builtin", code=3)
    assert "AssertionError" in said and "Captured again" not in said


def test_rules_of_the_trace_answer_real_numbers_as_well_where_these_are_looked_at(run_prism, captured, tmp_path):
    """By default a sum is what all peers together would give if they were like this rank."""
    trace, *_ = captured(LOOP + "    x = torch.ones(10)\n    dist.all_reduce(x)\n    assert x[0] == world\n",
                         "--inputs", "builtin", world=2)  # fmt: skip
    done = run_prism("time", trace.path, "-o", "timed.prism")
    assert done.returncode == 0, done.stderr
    assert "real numbers as well by the rules of the trace" in done.stderr and "Captured again" not in done.stderr
    assert diff(trace, prismllm.load(tmp_path / "timed.prism")) == (True, None)


def test_the_ready_made_rule_is_named_where_objects_are_missing(run_prism, captured, repository):
    trace, *_ = captured(repository / "tests/programs/pipeline.py", world=2)
    done = run_prism("time", trace.path, "--inputs", "builtin", "-o", "timed.prism")
    assert done.returncode == 3
    assert "objects were its own, or None; inputs.pipeline_activations(*shape) says what they are" in done.stderr


def test_a_recording_takes_no_more_than_a_part_of_the_room(run_prism, captured, small_disk, tmp_path):
    """12 MB that all differ; then the peers themselves are asked."""
    text = """
    x = torch.full((750_000,), 1.0 + 2 * step + rank)
    dist.all_reduce(x)
    assert x[0] == 3 + 4 * step
"""
    trace, *_ = captured(LOOP.replace("range(4)", "range(2)") + text, world=2)
    done = run_prism("time", trace.path, "-o", small_disk / "timed.prism", "--json", "time.json",
                     env=os.environ | {"TMPDIR": str(small_disk)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "recording tensors: more than" in done.stderr
    assert json.loads((tmp_path / "time.json").read_text())["values"] == "peers"
    assert sorted(os.listdir(small_disk)) == ["lost+found", "timed.prism"]


def test_runs_may_share_a_folder_and_logs(timed):
    program = LOOP + "    x = torch.ones(10)\n    dist.all_reduce(x)\n    assert x[0] == world\n"
    summary, _ = timed(program, "--run-dir", "run", "--log-dir", "logs", "--repeat", 2)
    assert summary["values"] == "recorded"
