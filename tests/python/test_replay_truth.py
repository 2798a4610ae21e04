"""Replay against real runs on Gloo: what a replay says of a recorded run, and of one that has not happened yet.

Compute is sleep, so that ranks do not fight for cores; each program times its own loop. Tolerances come from how much
the measured iterations of a run differ among themselves."""

import json
import statistics

import numpy as np
import pytest

from prismllm.replay import Edit, replay
from prismllm.trace import load

pytestmark = pytest.mark.alone  # it measures

STEPS = 12

# Rank 3 is 20 ms slower than the others, rank 1 sleeps `extra` longer. A message goes around the ring, a gradient is
# reduced behind more computing, and the step ends together.
PROGRAM = """
import json, os, sys, time
import torch, torch.distributed as dist
import prismllm

steps, extra = int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
gradient, activation, norm = torch.ones(50_000), torch.ones(1000), torch.ones(1)
times = []
dist.barrier()
for step in range(steps):
    prismllm.iteration()
    begin = time.perf_counter()
    time.sleep(0.040 + 0.020 * (rank == 3) + extra * (rank == 1))
    sent = dist.isend(activation, (rank + 1) % world)
    dist.recv(torch.empty(1000), (rank - 1) % world)
    sent.wait()
    work = dist.all_reduce(gradient, async_op=True)
    time.sleep(0.010)
    work.wait()
    dist.all_reduce(norm)
    times.append(time.perf_counter() - begin)
prismllm.iteration()
dist.barrier()
with open(os.path.join(sys.argv[1], f"times-{rank}.json"), "w") as out:
    json.dump(times, out)
dist.destroy_process_group()
"""


@pytest.fixture
def recorded(run_prism, tmp_path):
    """Runs the program for real, recorded; returns the trace and the iteration times [s] that its slowest rank saw."""

    def run(extra: float):
        folder = tmp_path / f"extra-{extra}"
        folder.mkdir()
        (folder / "train.py").write_text(PROGRAM)
        done = run_prism("record", "-n", 4, "-o", folder / "real.prism", folder / "train.py", folder, STEPS, extra)
        assert done.returncode == 0, done.stdout + done.stderr
        ranks = [json.loads((folder / f"times-{rank}.json").read_text()) for rank in range(4)]
        return load(folder / "real.prism"), np.max(ranks, axis=0)

    return run


def spread(times) -> float:
    """Half the range in which the middle 80% of a run's iterations lie."""
    low, *_, high = statistics.quantiles(times, n=10)
    return (high - low) / 2


def test_a_replay_takes_as_long_as_the_run_that_it_replays(recorded):
    trace, measured = recorded(extra=0.0)
    replayed = [iteration.time_s for iteration in replay(trace).iterations]
    assert len(replayed) == STEPS
    # Iteration by iteration, the machine's own delays included, for they are in the record: all but the few in which a
    # rank lost its processor in the middle of an issue.
    assert statistics.median(np.abs(replayed / measured - 1)) <= 0.01, (replayed, measured)
    tolerance = max(0.01 * statistics.median(measured), spread(measured))
    assert abs(statistics.median(replayed) - statistics.median(measured)) <= tolerance, (replayed, measured)


def test_a_span_made_longer_predicts_the_run_in_which_it_is_longer(recorded):
    """Rank 1 computes 30 ms longer; 20 ms of that were slack behind rank 3, so that the step grows by 10 ms."""
    trace, before = recorded(extra=0.0)
    edits = [Edit(rank=1, node=int(mark), add_s=0.030) for mark in trace.rank(1).mark_node[:STEPS]]
    predicted = statistics.median(iteration.time_s for iteration in replay(trace, edits).iterations)
    _, after = recorded(extra=0.030)
    tolerance = 0.01 * statistics.median(after) + spread(before) + spread(after)
    assert abs(predicted - statistics.median(after)) <= tolerance, (predicted, before, after)
