"""What a replay's iterations are made of, and who came late: the C++ analysis (csrc/replay/analysis.hpp) in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismllm import _graph
from prismllm.trace import Trace

NOT_STARTED = 0xFFFFFFFF  # Analysis::kNotStarted


@dataclass(frozen=True)
class Hop:
    """A node on a critical path, with the part of it that is: a path may enter or leave a node midway."""

    rank: int
    node: int  # index in the rank; -1: the rank's record had not begun
    kind: str  # compute, issue, transfer, wait (the time to wake up); "start" where the rank had not begun
    what: str  # a span's name, or the communication
    start_s: float
    duration_s: float


class CriticalPath:
    """[hops] columns `iteration`, `rank`, `node`, `start_ns`, `duration_ns`: iteration after iteration, in order of
    time. An iteration's hops follow each other without a gap and sum to its time."""

    def __init__(self, trace: Trace, columns: dict[str, np.ndarray]):
        self.trace, self.columns = trace, columns

    def of(self, iteration: int) -> list[Hop]:
        return self._hops(np.flatnonzero(self.columns["iteration"] == iteration))

    def longest(self, iteration: int, most: int) -> tuple[list[Hop], dict]:
        """At most so many hops of an iteration, the longest, in order of time; how many others there are, and their
        sum."""
        all_hops = np.flatnonzero(self.columns["iteration"] == iteration)
        durations = self.columns["duration_ns"][all_hops]
        order = np.argsort(-durations, kind="stable")
        rest = durations[order[most:]]
        return self._hops(np.sort(all_hops[order[:most]])), {"hops": len(rest), "duration_s": int(rest.sum()) / 1e9}

    def _hops(self, rows: np.ndarray) -> list[Hop]:
        columns = [self.columns[name][rows].tolist() for name in ("rank", "node", "start_ns", "duration_ns")]
        return [Hop(rank, -1 if node == NOT_STARTED else node, *describe(self.trace, rank, node), start / 1e9,
                    length / 1e9) for rank, node, start, length in zip(*columns, strict=True)]  # fmt: skip


def describe(trace: Trace, rank: int, node: int) -> tuple[str, str]:
    """(kind, what) of a node."""
    if node == NOT_STARTED:
        return "start", "the rank's record had not begun"
    own = trace.rank(rank)
    kind, comm = _graph.NODE_KINDS[own.node_kind[node]], int(own.node_comm[node])
    if kind == "compute":
        return kind, own.name_of(node)
    if comm < 0:
        return kind, ""
    op, seq = _graph.OPS[own.comm_op[comm]], own.comm_seq[comm]
    if op not in ("send", "recv"):
        return kind, f"{op} {seq} of group '{own.groups[own.comm_group[comm]].name}'"
    peer = own.comm_peer[comm]
    other = f"rank {own.peers[peer]}" if peer >= 0 else "any rank"
    return kind, f"{op} {seq} {'to' if op == 'send' else 'from'} {other}"


@dataclass(frozen=True)
class Late:
    """A collective, its last member, and by how much it came after the last but one; waited_s: what members waited for
    it, summed over them."""

    op: str
    group: str
    seq: int
    members: int
    bytes: int
    late_rank: int
    late_by_s: float
    waited_s: float

    @property
    def what(self) -> str:
        return f"{self.op} {self.seq} of group '{self.group}'"


def late_comers(trace: Trace, columns: dict[str, np.ndarray], most: int) -> tuple[list[Late], dict]:
    waited = columns["waited_ns"]
    order = np.argsort(-waited, kind="stable")[: np.count_nonzero(waited)]
    names = ("op", "group", "seq", "members", "bytes", "late_rank", "late_by_ns", "waited_ns")
    rows = zip(*(columns[name][order[:most]].tolist() for name in names), strict=True)
    late = [Late(_graph.OPS[op], trace.groups[group].name, seq, members, size, rank, by / 1e9, ns / 1e9)
            for op, group, seq, members, size, rank, by, ns in rows]  # fmt: skip
    rest = order[most:]
    return late, {"collectives": len(rest), "waited_s": int(waited[rest].sum()) / 1e9}
