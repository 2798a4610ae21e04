"""Measured iteration times of a recorded trace, defined as a replay defines its own (csrc/replay/report.cpp)."""

from __future__ import annotations

import numpy as np

from prismllm.trace import Rank, Trace


def iteration_times(trace: Trace) -> list[dict]:
    """[{index, time_s}]: from mark to mark on each rank, the longest of all ranks."""
    by_rank = [_of_rank(trace.rank(rank)) for rank in trace.ranks]
    count = min(map(len, by_rank), default=0)
    return [{"index": i, "time_s": float(max(times[i] for times in by_rank)) / 1e9} for i in range(count)]


def _of_rank(rank: Rank) -> list[int]:
    marks = rank.mark_node
    if len(marks) == 0:
        return []
    times = np.diff(rank.start_ns[marks]).tolist()
    # The last one ends after as many nodes as the one before it had, if the program went on that far: a mark may also
    # stand at the end of the last iteration. A compute span there includes leaving the loop, so it counts as the
    # span in that place one iteration earlier.
    transfer, issue, compute = (rank.is_kind(kind) for kind in ("transfer", "issue", "compute"))
    lane = np.flatnonzero((rank.node_lane == rank.node_lane[marks[-1]]) & ~transfer)
    tail = lane[lane >= marks[-1]]
    model = lane[(lane >= marks[-2]) & (lane < marks[-1])] if len(marks) > 1 else tail
    if issue[model].any() and issue[tail].sum() >= issue[model].sum():
        last, pattern = ((nodes[min(len(tail), len(model)) - 1]) for nodes in (tail, model))
        length = rank.duration_ns[last]
        if compute[last] and compute[pattern]:
            length = min(length, rank.duration_ns[pattern])
        times.append(int(rank.start_ns[last] + length - rank.start_ns[marks[-1]]))
    return times
