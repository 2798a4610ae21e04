"""Where iterations begin and end on each rank."""

from __future__ import annotations

import numpy as np

from prismllm import _graph
from prismllm.trace import Rank, Trace

_COMPUTE, _ISSUE, _TRANSFER = (_graph.NODE_KINDS.index(kind) for kind in ("compute", "issue", "transfer"))


def iteration_bounds(rank: Rank) -> np.ndarray:
    """[iterations + 1] ns: iteration i of this rank lasts from entry i to entry i + 1. Empty where nothing is marked.

    Programs mark the beginning of each iteration, and some also the end of the last. What follows the last mark counts
    as an iteration if it issues as many communications as the one before; it then has as many nodes, and its last
    compute span, in which the program also leaves the loop, is taken to be no longer than the one in that place there.
    """
    marks = rank.mark_node
    if not len(marks):
        return np.zeros(0, np.int64)
    bounds = rank.start_ns[marks]
    tail = _lane_nodes(rank, marks[-1], None)
    ends = rank.end_ns
    if len(marks) == 1:
        return np.append(bounds, ends[tail[-1]])
    before = _lane_nodes(rank, marks[-2], marks[-1])
    issues = np.count_nonzero(rank.node_kind[before] == _ISSUE)
    if issues == 0 or np.count_nonzero(rank.node_kind[tail] == _ISSUE) < issues:
        return bounds
    place = min(len(tail), len(before)) - 1
    last, model = tail[place], before[place]
    duration = rank.duration_ns[last]
    if rank.node_kind[last] == _COMPUTE and rank.node_kind[model] == _COMPUTE:
        duration = min(duration, rank.duration_ns[model])
    return np.append(bounds, rank.start_ns[last] + duration)


def iteration_times(trace: Trace) -> np.ndarray:
    """[iterations, ranks] ns, for the iterations that all marked ranks have; a rank without marks has none: -1."""
    bounds = [iteration_bounds(trace.rank(rank)) for rank in trace.ranks]
    count = min((len(b) - 1 for b in bounds if len(b)), default=0)
    times = np.full((count, len(bounds)), -1, np.int64)
    for column, b in enumerate(bounds):
        if len(b):
            times[:, column] = np.diff(b)[:count]
    return times


def iterations_of_nodes(rank: Rank, start_ns: np.ndarray) -> np.ndarray:
    """[nodes] The iteration that each node belongs to, -1 before the first mark: by program order on the lane of the
    marks, elsewhere by these starts."""
    marks = rank.mark_node
    if not len(marks):
        return np.full(len(rank.node_kind), -1, np.int32)
    by_time = np.searchsorted(start_ns[marks], start_ns, side="right") - 1
    by_order = np.searchsorted(marks, np.arange(len(start_ns)), side="right") - 1
    own = rank.node_lane == rank.node_lane[marks[0]]
    return np.where(own, by_order, by_time).astype(np.int32)


def _lane_nodes(rank: Rank, first: int, end: int | None) -> np.ndarray:
    """Nodes of the first one's lane, transfers apart, up to the node `end` (None: to the lane's end)."""
    nodes = np.arange(first, len(rank.node_kind) if end is None else end)
    return nodes[(rank.node_lane[nodes] == rank.node_lane[first]) & (rank.node_kind[nodes] != _TRANSFER)]
