"""prism emulate: chosen ranks run for real, the others are virtual."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from test_programs import BASELINE, PROGRAMS, assert_close, result_of

import prismllm
from prismllm.replay import Edit, as_recorded, replay

# Every rank computes, reduces, and passes something on around the ring.
RING = """
import sys, torch
import torch.distributed as dist
import prismllm
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.zeros(3)
for step in range(5):
    prismllm.iteration()
    x = torch.full((1000,), float(rank + step))
    dist.all_reduce(x)
    got = torch.empty(3)
    work = dist.irecv(got, (rank - 1) % world)
    dist.send(torch.full((3,), float(10 * rank + step)), (rank + 1) % world)
    work.wait()
    total += got + x[:3]
print("RESULT", '{"rank": %d, "total": %s}' % (rank, total.tolist()))
"""


@pytest.fixture
def emulate(run_prism, tmp_path):
    """Emulates; returns (its summary, the trace it wrote, the process)."""

    def run(trace, ranks, *options, words=(), code=0):
        done = run_prism("emulate", trace, "--ranks", ranks, "--json", "emu.json", "-o", "emu.prism", *options, *words)
        assert done.returncode == code, done.stdout + done.stderr
        if code:
            return None, None, done
        return json.loads((tmp_path / "emu.json").read_text()), prismllm.load(tmp_path / "emu.prism"), done

    return run


@pytest.fixture
def ring(run_prism, tmp_path):
    """The ring of 4 ranks, captured with what all of them send."""
    (tmp_path / "ring.py").write_text(RING)
    done = run_prism("capture", "-n", 4, "--slots", 2, "--data", "all.data", "-o", "ring.prism", "ring.py")
    assert done.returncode == 0, done.stderr
    return tmp_path / "ring.prism"


def totals(output):
    lines = [json.loads(line.split("RESULT ", 1)[1]) for line in output.splitlines() if "RESULT" in line]
    return {line["rank"]: line["total"] for line in lines}


def expected_total(rank, world=4):
    per_step = (10 * ((rank - 1) % world) + step + sum(r + step for r in range(world)) for step in range(5))
    return [float(sum(per_step))] * 3


@pytest.mark.parametrize("ranks", ["2", "0,1", "0,2,3", "0-3"])
def test_values_are_those_of_the_whole_job(ring, emulate, ranks):
    summary, trace, done = emulate(ring, ranks, "--data", "all.data")
    real = [one["rank"] for one in summary["sandbox"]]
    assert totals(done.stdout) == {rank: expected_total(rank) for rank in real}
    assert summary["invented_values"] == []
    assert summary["late_issue_s"] == 0
    assert summary["groups"] == {"total": 1, "instantiated": 1, "mixed": 0 if ranks == "0-3" else 1}
    assert trace.ranks == real
    assert len(summary["iterations"]) >= 4


def test_what_is_kept_for_the_real_ranks_is_enough(run_prism, ring, emulate):
    done = run_prism("capture", "-n", 4, "--slots", 2, "--data", "for.data", "--for-ranks", "1,2", "-o", "again.prism",
                     "ring.py")  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary, _, done = emulate(ring, "1,2", "--data", "for.data")
    assert totals(done.stdout) == {rank: expected_total(rank) for rank in (1, 2)}
    assert summary["invented_values"] == []
    *_, done = emulate(ring, "1", "--data", "for.data", code=2)
    assert "has what ranks [1, 2] receive; accepted: [1], or of all ranks" in done.stderr


def test_what_real_ranks_send_is_compared(ring, emulate, tmp_path):
    summary, _, done = emulate(ring, "1,3", "--data", "all.data", "--check-values")
    assert summary["checked_values"] == {"checked": 20, "different": 0, "first": ""}
    (tmp_path / "other.py").write_text(RING.replace("float(rank + step)", "float(rank + step + (step > 2))"))
    summary, _, done = emulate(ring, "1,3", "--data", "all.data", "--check-values", words=("other.py",))
    assert summary["checked_values"]["different"] == 4
    assert "differ from then in 4 of 20 communications; first: rank " in done.stdout
    assert "all_reduce 3 of group '0'" in done.stdout


def test_without_data_values_are_made_up_and_it_says_so(ring, emulate):
    summary, _, done = emulate(ring, "1")
    assert {(one["op"], one["count"]) for one in summary["invented_values"]} == {("all_reduce", 5), ("recv", 5)}
    assert "made up in 10 communications: losses mean nothing (--data)" in done.stdout


def test_a_program_that_looks_at_values_gets_those_of_one_more_capture(emulate, run_prism, tmp_path):
    """Without the peers' numbers the sum is not what the program checks."""
    (tmp_path / "looks.py").write_text(RING.replace("    got = ", "    assert x[0] == 6 + 4 * step\n    got = "))
    done = run_prism("capture", "-n", 4, "--slots", 2, "-o", "ring.prism", "looks.py")
    assert done.returncode == 0, done.stderr
    summary, _, done = emulate("ring.prism", "1")
    assert "Captured once more" in done.stderr
    assert totals(done.stdout)[1] == expected_total(1) and summary["invented_values"] == []


def test_groups_are_explained_without_a_run(ring, run_prism, tmp_path):
    """In a ring of four the neighbours of rank 0 are 1 and 3, by message and by all-reduce."""
    done = run_prism("emulate", ring, "--ranks", "0", "--explain-groups", "--json", "groups.json")
    assert done.returncode == 0, done.stderr
    groups = json.loads((tmp_path / "groups.json").read_text())["groups"]
    assert (groups["before"], groups["left"], groups["vanished"]) == (1, 1, 0)
    assert (groups["members"], groups["members_left"], groups["members_kept"]) == (4, 4, 3)
    assert groups["kept"][0]["kept"] == [0, 1, 3]
    assert "ranks 0-1,3 of 4, for all_reduce (ring)" in done.stdout
    assert not list(tmp_path.glob("*.emu.prism"))


def test_memory_is_that_of_the_whole_job_and_its_limit_holds(ring, emulate, tmp_path):
    """Each step holds 4,000 bytes and two tensors of 12."""
    summary, _, _ = emulate(ring, "1,2", "--data", "all.data")
    of_all = {rank.rank: rank.peak_memory_bytes for rank in as_recorded(ring).ranks}
    for one in summary["sandbox"]:
        assert one["peak_memory_bytes"] == of_all[one["rank"]] > 4000
    assert {one["rank"] for one in summary["memory"]["ranks"]} == {0, 1, 2, 3}
    *_, done = emulate(ring, "1,2", "--data", "all.data", "--memory-limit", "2K", code=3)
    assert "OutOfMemoryError" in done.stderr


SLOW = [Edit(rank=rank, set_s=0.02 if rank == 3 else 1e-5) for rank in range(4)]


def ends_of_all_reduces(of, timing):
    """Of rank 1, ns."""
    rank = of.rank(1)
    start, duration = timing(1)
    transfers = rank.is_kind("transfer")
    of_all_reduce = rank.is_op("all_reduce")[rank.node_comm[transfers]]
    return (start + duration)[transfers][of_all_reduce]


def test_virtual_ranks_take_their_time_and_the_real_one_waits_for_them(ring, emulate, tmp_path):
    """Rank 3 computes 20 ms before each all-reduce, which everybody waits for: the all-reduces of the real rank end
    when those of a replay do, to the nanosecond, whatever rank 1 takes itself in less than that."""
    expected = replay(ring, edits=SLOW)
    expected.retimed().write(tmp_path / "slow.prism")
    _, trace, _ = emulate(tmp_path / "slow.prism", "1", "--data", "all.data")
    real = ends_of_all_reduces(trace, trace.graph.timing)
    replayed = ends_of_all_reduces(prismllm.load(ring), expected.timeline)
    assert np.array_equal(np.diff(real), np.diff(replayed))
    assert np.diff(real).min() > 20_000_000


@pytest.mark.parametrize("name", ["collectives", "subgroups", "ddp_buckets", "fsdp2", "moe", "objects",
                                  "pipeline_1f1b", "zero_optimizer"])  # fmt: skip
def test_losses_of_programs_are_those_of_gloo(name, run_prism, emulate):
    """Rank 0 prints its result; it runs with the last rank, among virtual ones."""
    job = BASELINE[name]
    program, ranks = PROGRAMS / job["program"], f"0,{job['world'] - 1}"
    done = run_prism("capture", "-n", job["world"], "--slots", 2, "--data", "job.data", "--for-ranks", ranks, "-o",
                     "job.prism", program, *job["options"], timeout=180)  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary, _, done = emulate("job.prism", ranks, "--data", "job.data", words=(program, *job["options"]))
    assert_close(result_of(done.stdout), job["result"])
    assert summary["invented_values"] == []


# Rank 1 has what it gets from the root, and sends on, before rank 2 comes for its own.
SCATTERED = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(3):
    mine, root = torch.zeros(4), torch.full((2,), float(rank))
    blocks = [torch.full((4,), float(r)) for r in range(3)] if rank == 0 else None
    for spread in (lambda: dist.scatter(mine, blocks, src=0), lambda: dist.broadcast(root, src=0)):
        if rank == 2:
            dist.recv(torch.empty(1), 1)
        spread()
        if rank == 1:
            dist.send(torch.ones(1), 2)
print("RESULT", '{"rank": %d, "total": %s}' % (rank, mine.tolist() + root.tolist()))
"""


def test_what_a_virtual_root_gives_to_one_does_not_wait_for_others(run_prism, emulate, tmp_path):
    (tmp_path / "scattered.py").write_text(SCATTERED)
    done = run_prism("record", "-n", 3, "-o", "scattered.prism", "scattered.py")
    assert done.returncode == 0, done.stderr
    assert totals(done.stdout) == {rank: [float(rank)] * 4 + [0.0] * 2 for rank in range(3)}
    summary, _, done = emulate("scattered.prism", "1,2")
    assert {(one["op"], one["count"]) for one in summary["invented_values"]} == {("scatter", 3), ("broadcast", 3)}
    for rank, total in totals(done.stdout).items():
        assert total[4:] == [float(rank)] * 2  # a broadcast that nobody knows leaves what is there


def test_a_program_that_departs_from_the_trace_is_told_where(ring, emulate, tmp_path):
    text = RING.replace("torch.full((1000,)", "torch.full((1001 if step == 2 else 1000,)")
    (tmp_path / "other.py").write_text(text)
    *_, done = emulate(ring, "1", "--data", "all.data", words=("other.py",), code=3)
    assert ("rank 1: the program issues all_reduce 2 of group '0' (float32, sum, 4004 bytes in, 4004 out); the trace "
            "has all_reduce 2 of group '0' (float32, sum, 4000 bytes in, 4000 out)") in done.stderr  # fmt: skip
    summary, _, done = emulate(ring, "1", "--data", "all.data", "--on-divergence", "warn", words=("other.py",))
    assert len(summary["differences"]) == 1
    assert [(one["op"], one["count"]) for one in summary["invented_values"]] == [("all_reduce", 1)]


def test_a_program_that_ends_early_is_told(ring, emulate, tmp_path):
    (tmp_path / "short.py").write_text(RING.replace("range(5)", "range(4)"))
    *_, done = emulate(ring, "1", "--data", "all.data", words=("short.py",), code=3)
    assert "the trace goes on: rank 1 has not issued all_reduce 4 of group '0'" in done.stderr


def test_a_program_that_goes_on_finds_the_last_period_repeated(run_prism, emulate, tmp_path):
    """Four iterations are recorded, ten emulated: what virtual ranks do in the last six lasts as long each time."""
    for steps in (4, 10):
        (tmp_path / f"steps{steps}.py").write_text(RING.replace("range(5)", f"range({steps})"))
    done = run_prism("capture", "-n", 4, "--slots", 2, "--data", "all.data", "-o", "four.prism", "steps4.py")
    assert done.returncode == 0, done.stderr
    expected = replay(tmp_path / "four.prism", edits=SLOW)
    expected.retimed().write(tmp_path / "slow.prism")
    summary, trace, _ = emulate(tmp_path / "slow.prism", "1", "--data", "all.data", "--check-values",
                                words=("steps10.py",))  # fmt: skip
    real = np.diff(ends_of_all_reduces(trace, trace.graph.timing))
    replayed = np.diff(ends_of_all_reduces(prismllm.load(tmp_path / "four.prism"), expected.timeline))
    assert len(real) == 9
    assert np.array_equal(real[:3], replayed)
    # Issues of the period last as they did in it: all that distinguishes it from the iteration before.
    assert len(set(real[3:])) == 1
    assert real[3] == pytest.approx(replayed[2], abs=1_000_000)
    assert len(summary["iterations"]) == 10
    assert {(one["op"], one["count"]) for one in summary["invented_values"]} == {("all_reduce", 6), ("recv", 6)}
    assert summary["known_values"] > 0
    assert summary["checked_values"]["different"] == 0
    assert summary["late_issue_s"] == 0


def test_a_program_that_goes_on_and_never_repeats_itself_is_told(run_prism, emulate, tmp_path):
    growing = RING.replace("    dist.all_reduce(x)\n", "    for _ in range(step + 1): dist.all_reduce(x)\n")
    for steps in (3, 4):
        (tmp_path / f"growing{steps}.py").write_text(growing.replace("range(5)", f"range({steps})"))
    done = run_prism("capture", "-n", 4, "--slots", 2, "--data", "all.data", "-o", "grown.prism", "growing3.py")
    assert done.returncode == 0, done.stderr
    *_, done = emulate("grown.prism", "1", "--data", "all.data", words=("growing4.py",), code=3)
    assert (
        "rank 1: the program issues all_reduce 6 of group '0' (float32, sum, 4000 bytes in, 4000 out); the trace has "
        "none of that number; the job does not go on beyond its record, as it is not periodic"
    ) in done.stderr


def test_a_real_rank_that_dies_ends_the_run_with_its_cause(ring, emulate, tmp_path):
    (tmp_path / "dies.py").write_text(
        RING.replace(
            "    prismllm.iteration()\n",
            "    prismllm.iteration()\n    if rank == 1 and step == 3: import os; os.kill(os.getpid(), 9)\n",
        )
    )
    for data in (("--data", "all.data"), ()):
        *_, done = emulate(ring, "0,1", *data, words=("dies.py",), code=3)
        assert "rank 1 was killed by SIGKILL" in done.stderr
        assert "Captured once more" not in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--ranks", "4"), "--ranks: rank 4 is not in the job; accepted: 0 to 3"),
        (("--ranks", "x"), "'x' is not a list of ranks"),
        (("--ranks", "0", "--network", "flow"), "--network is of a --comm file"),
        (("--ranks", "0", "--data", "nowhere"), "nowhere"),
        ((), "--ranks"),
    ],
)
def test_wrong_use(ring, run_prism, options, text):
    done = run_prism("emulate", ring, *options)
    assert done.returncode == 2
    assert text in done.stderr


def test_an_interrupt_leaves_nothing(ring, tmp_path):
    (tmp_path / "slow.py").write_text(
        RING.replace(
            "    prismllm.iteration()\n",
            "    prismllm.iteration()\n    print('here', flush=True); import time; time.sleep(60)\n",
        )
    )
    command = [sys.executable, "-m", "prismllm", "emulate", str(ring), "--ranks", "0", "slow.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "here" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert not os.path.exists(tmp_path / "ring.emu.prism"), errors


SLEEPS = """
import time, torch
import torch.distributed as dist
import prismllm
dist.init_process_group("gloo")
for step in range(6):
    prismllm.iteration()
    time.sleep(0.02)
    dist.all_reduce(torch.ones(10))
"""


def test_a_slow_unit_is_named(run_prism, tmp_path):
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    assert run_prism("capture", "-n", 4, "--slots", 2, "-o", "job.prism", "sleeps.py").returncode == 0
    units = sorted(os.sched_getaffinity(0))[:2]
    if len(units) < 2:
        pytest.skip("one processor has nobody to be compared with")
    named = ",".join(map(str, units))
    done = run_prism("health", "job.prism", "--units", named, "--slow", f"{units[1]}=2", "--tolerance", "0.4", "--json",
                     "health.json")  # fmt: skip
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "health.json").read_text())
    assert found["slow"] == [units[1]]
    assert [one["verdict"] for one in found["units"]] == ["ok", "slow"]
    assert f"unit {units[1]}  slow" in done.stdout


def test_units_are_compared_in_the_same_role():
    from prismllm.emulation.units import pairs_of, verdicts

    assert pairs_of((3, 5, 8)) == [(3, 5), (5, 8), (8, 3)]
    needs = {3: 1.0, 5: 1.2, 8: 1.02}  # as the first rank; the second has twice as much to do
    runs = {(a, b): [{"iter_s": 3.0, "busy_s": needs[a]}, {"iter_s": 3.0, "busy_s": 2 * needs[b]}]
            for a, b in pairs_of((3, 5, 8))}  # fmt: skip
    found = {one.unit: one for one in verdicts((3, 5, 8), runs, 0.05)}
    assert {unit: one.ok for unit, one in found.items()} == {3: True, 5: False, 8: True}
    assert found[5].slower_by == pytest.approx(1.2 / 1.01 - 1)
    once = runs | {(3, 5): [runs[3, 5][0], {"iter_s": 3.0, "busy_s": 2.0}]}  # slow in one of its roles only
    assert all(one.ok for one in verdicts((3, 5, 8), once, 0.05))
