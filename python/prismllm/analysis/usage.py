"""What ranks did with their time: busy, exposed communication, waiting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismllm import _graph
from prismllm.analysis.iterations import iteration_bounds
from prismllm.analysis.meetings import Meetings
from prismllm.trace import Rank, Trace

_COMPUTE, _ISSUE, _TRANSFER, _WAIT = range(4)
assert _graph.NODE_KINDS == ["compute", "issue", "transfer", "wait"]


@dataclass
class Usage:
    """[iterations + 1, ranks] ns summed over lanes; the last row is the whole trace. Ranks are those of trace.ranks.

    busy     compute and issue
    exposed  waits, from when the communication that they end with could start (all whom it needs had come)
    waiting  the waits' parts before that
    caused   [ranks] ns over the whole trace: what others waited until this rank had come
    """

    busy: np.ndarray
    exposed: np.ndarray
    waiting: np.ndarray
    caused: np.ndarray


def split_waits(rank: Rank, ready_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(nodes, waiting ns, comms): the wait nodes of a rank, how long each of them waited for others to come, and the
    communication that it ended with (-1: none).

    ready_ns [comms]: from Meetings. Of several communications that one wait covers, the last to end counts.
    """
    waits = np.flatnonzero(rank.node_kind == _WAIT)
    ends = rank.end_ns
    into_wait = (rank.node_kind[rank.edge_dst] == _WAIT) & (rank.node_kind[rank.edge_src] == _TRANSFER)
    source, wait = rank.edge_src[into_wait], rank.edge_dst[into_wait]
    order = np.lexsort((-source.astype(np.int64), ends[source], wait))  # per wait: by end, the first node last
    source, wait = source[order], wait[order]
    final = np.append(wait[1:] != wait[:-1], True) if len(wait) else np.zeros(0, bool)
    comms = np.full(len(rank.node_kind), -1, np.int64)
    comms[wait[final]] = rank.node_comm[source[final]]
    comms = comms[waits]
    waited = np.zeros(len(waits), np.int64)
    known = comms >= 0
    waited[known] = ready_ns[comms[known]] - rank.start_ns[waits[known]]
    return waits, np.clip(waited, 0, rank.duration_ns[waits]), comms


def usage(trace: Trace, meetings: Meetings | None = None) -> Usage:
    meetings = meetings or Meetings(trace)
    bounds = {rank: iteration_bounds(trace.rank(rank)) for rank in trace.ranks}
    count = min((len(b) - 1 for b in bounds.values() if len(b)), default=0)
    shape = (count + 1, len(trace.ranks))
    busy, exposed, waiting = (np.zeros(shape, np.int64) for _ in range(3))
    caused = np.zeros(trace.world_size, np.int64)
    for column, number in enumerate(trace.ranks):
        rank = trace.rank(number)
        rows = meetings.of_rank(number, len(rank.comm_op))
        waits, waited, comms = split_waits(rank, meetings.ready_ns[rows])
        work = np.flatnonzero((rank.node_kind == _COMPUTE) | (rank.node_kind == _ISSUE))
        np.add.at(caused, meetings.holder[rows][comms[waited > 0]], waited[waited > 0])
        for target, nodes, spans in (
            (busy, work, rank.duration_ns[work]),
            (waiting, waits, waited),
            (exposed, waits, rank.duration_ns[waits] - waited),
        ):
            target[-1, column] = spans.sum()
            if len(bounds[number]):
                iteration = np.searchsorted(bounds[number][: count + 1], rank.start_ns[nodes], side="right") - 1
                inside = (iteration >= 0) & (iteration < count)
                np.add.at(target[:, column], iteration[inside], spans[inside])
    return Usage(busy, exposed, waiting, caused[trace.ranks])
