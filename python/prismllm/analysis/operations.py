"""A table of what was communicated: operations by the shape of their group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismllm import _graph
from prismllm.analysis.meetings import Meetings
from prismllm.trace import Trace

_RECV = _graph.OPS.index("recv")


@dataclass
class Operation:
    """One row: an operation on groups of one shape."""

    op: str
    group: str  # "4 groups of 2 ranks, 1 apart"
    group_size: int
    count: int  # collectives and messages, each once whatever its number of members
    bytes: int  # what all members put in; of a receive what it got out
    rank_seconds: float  # own issue to own end, summed over all members: waiting for others included
    transfer_seconds: float  # the same from when all had come: what the links needed


def group_shape(members: np.ndarray, world_size: int) -> str:
    """ "2 ranks, 4 apart": groups that differ only in where they begin have one shape."""
    size = len(members)
    if size == world_size:
        return f"all {size} ranks"
    steps = np.unique(np.diff(members))
    if size == 1:
        return "1 rank"
    return f"{size} ranks, {abs(steps[0])} apart" if len(steps) == 1 else f"{size} ranks, uneven"


def operations(trace: Trace, meetings: Meetings | None = None) -> list[Operation]:
    """Rows by descending time."""
    meetings = meetings or Meetings(trace)
    shapes = [group_shape(g.members, trace.world_size) for g in trace.groups]
    names = sorted(set(shapes))
    shape_of_group = np.asarray([names.index(s) for s in shapes], np.int64)
    sizes = {s: len(g.members) for s, g in zip(shapes, trace.groups, strict=True)}
    keys = len(_graph.OPS) * len(names)
    volume, spent, moved = (np.zeros(keys, np.int64) for _ in range(3))
    key_of_entry = np.zeros(len(meetings.op), np.int64)
    used = [set() for _ in range(keys)]  # groups
    for number in trace.ranks:
        rank = trace.rank(number)
        rows = meetings.of_rank(number, len(rank.comm_op))
        groups = np.asarray([g.id for g in rank.groups], np.int64)[rank.comm_group]
        key = rank.comm_op.astype(np.int64) * len(names) + shape_of_group[groups]
        key_of_entry[rows] = key
        np.add.at(volume, key, np.where(rank.comm_op == _RECV, rank.comm_output_bytes, rank.comm_input_bytes))
        np.add.at(spent, key, meetings.end_ns[rows] - meetings.start_ns[rows])
        np.add.at(moved, key, meetings.end_ns[rows] - meetings.ready_ns[rows])
        for k, group in np.unique(np.stack([key, groups]), axis=1).T.tolist():
            used[k].add(group)
    # A collective counts once; a send and its receive share a meeting but are two operations.
    once = np.unique(np.stack([meetings.meeting, key_of_entry]), axis=1)[1]
    counts = np.bincount(once, minlength=keys)
    rows = []
    for key in np.flatnonzero(counts).tolist():
        shape = names[key % len(names)]
        many = "" if len(used[key]) == 1 else f"{len(used[key])} groups of "
        rows.append(
            Operation(
                op=_graph.OPS[key // len(names)],
                group=many + shape,
                group_size=sizes[shape],
                count=int(counts[key]),
                bytes=int(volume[key]),
                rank_seconds=spent[key] / 1e9,
                transfer_seconds=moved[key] / 1e9,
            )
        )
    return sorted(rows, key=lambda row: (-row.rank_seconds, row.op, row.group))
