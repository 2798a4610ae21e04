"""Who took part in each communication, and when the last of those that a member needs had come."""

from __future__ import annotations

import numpy as np

from prismllm import _graph
from prismllm.trace import Rank, Trace

_TRANSFER, _WAIT = _graph.NODE_KINDS.index("transfer"), _graph.NODE_KINDS.index("wait")
_SEND, _RECV = _graph.OPS.index("send"), _graph.OPS.index("recv")
_FROM_ROOT = [_graph.OPS.index(op) for op in ("broadcast", "scatter")]
_TO_ROOT = [_graph.OPS.index(op) for op in ("reduce", "gather")]
_IS_ROOT = 2  # CommFlags::kCommIsRoot


class Meetings:
    """All communications of a trace, one row for each rank that took part ("entry"), sorted by rank, then issue order.

    entry_base  [ranks]    row of a recorded rank's first communication
    rank        [entries]  global rank
    meeting     [entries]  which communication: equal for all members of a collective, for a send and its receive
    start_ns    [entries]  when this member had issued it
    end_ns      [entries]  when this member was done; of a message that was looked at late, when its other end was
    ready_ns    [entries]  when everyone whom this member needed had come, at most end_ns
    holder      [entries]  the rank that came at ready_ns: who was waited for, if anyone (the member itself, else)
    """

    def __init__(self, trace: Trace):
        parts = [_Entries(trace.rank(rank)) for rank in trace.ranks]
        sizes = [len(part.op) for part in parts]
        self.entry_base = dict(zip(trace.ranks, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True)) if parts else {}

        def join(field, dtype=np.int64):
            return np.concatenate([getattr(part, field) for part in parts]) if parts else np.zeros(0, dtype)

        self.rank = np.repeat(np.asarray(trace.ranks, np.int64), sizes)
        self.op, self.start_ns, self.end_ns = join("op", np.uint8), join("start_ns"), join("end_ns")
        # A meeting is known by five numbers: group and sequence, or the two ends of a message, its tag and its order.
        keys = [join(f"key{i}") for i in range(5)]
        order = np.lexsort(keys[::-1]) if len(self.op) else np.zeros(0, np.int64)
        new = np.zeros(len(order), bool)
        for key in keys:
            new[1:] |= np.diff(key[order]) != 0
        self.meeting = np.empty(len(order), np.int64)
        self.meeting[order] = np.cumsum(new)
        self.count = int(self.meeting.max()) + 1 if len(order) else 0
        self._correct_late_looks(join("looked_ns"))
        self.ready_ns, self.holder = self._ready(join("is_root", bool))

    def of_rank(self, rank: int, comms: int) -> slice:
        """The rows of a rank that has so many communications."""
        return slice(self.entry_base[rank], self.entry_base[rank] + comms)

    def _correct_late_looks(self, looked_ns: np.ndarray) -> None:
        """Gloo tells of a message's end only to who waits for it: where a wait began after the other end was done, its
        own end says when it was looked at, and the other end's is closer to the truth (as in csrc/replay)."""
        messages = np.flatnonzero((self.op == _SEND) | (self.op == _RECV))
        order = messages[np.argsort(self.meeting[messages], kind="stable")]
        pair = np.flatnonzero(self.meeting[order[1:]] == self.meeting[order[:-1]]) if len(order) else order
        a, b = order[pair], order[pair + 1]
        end_a, end_b = self.end_ns[a].copy(), self.end_ns[b].copy()
        for own, own_end, other_end in ((a, end_a, end_b), (b, end_b, end_a)):
            late = (looked_ns[own] > other_end) & (looked_ns[own] <= own_end)
            self.end_ns[own[late]] = np.maximum(other_end, self.start_ns[own])[late]

    def _ready(self, is_root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = np.lexsort((-self.rank, self.start_ns))  # who comes last is written last; of several the lowest rank
        last, root = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)  # [meetings] entry
        last[self.meeting[order]] = order
        root[self.meeting] = np.arange(len(order))
        root[self.meeting[is_root]] = np.flatnonzero(is_root)
        needs_root_only = (np.isin(self.op, _FROM_ROOT) | np.isin(self.op, _TO_ROOT)) & ~is_root
        needed = np.where(needs_root_only, root[self.meeting], last[self.meeting])
        # Who came before this member, or after it was done (to the root of a broadcast, say), did not hold it.
        held = (self.start_ns[needed] > self.start_ns) & (self.start_ns[needed] <= self.end_ns)
        needed = np.where(held, needed, np.arange(len(order)))
        return self.start_ns[needed], self.rank[needed]


class _Entries:
    """One rank's communications as rows of Meetings."""

    def __init__(self, rank: Rank):
        comms = len(rank.comm_op)
        transfers = np.flatnonzero(rank.is_kind("transfer"))
        issues = np.flatnonzero(rank.is_kind("issue"))
        self.op = rank.comm_op
        self.start_ns, self.end_ns = np.zeros(comms, np.int64), np.zeros(comms, np.int64)
        for nodes in (issues, transfers):  # where there is no transfer node, the issue's end stands for it
            comm = rank.node_comm[nodes]
            ends = rank.start_ns[nodes] + rank.duration_ns[nodes]
            self.start_ns[comm] = ends if nodes is issues else rank.start_ns[nodes]
            self.end_ns[comm] = ends
        # When the first wait for it began; never, where nothing waits.
        self.looked_ns = np.full(comms, np.iinfo(np.int64).max)
        waited = (rank.node_kind[rank.edge_src] == _TRANSFER) & (rank.node_kind[rank.edge_dst] == _WAIT)
        waits = rank.edge_dst[waited]
        np.minimum.at(self.looked_ns, rank.node_comm[rank.edge_src[waited]], rank.start_ns[waits])
        self.is_root = (rank.comm_flags & _IS_ROOT) != 0
        message = (self.op == _SEND) | (self.op == _RECV)
        group = np.asarray([g.id for g in rank.groups], np.int64)[rank.comm_group]
        known = message & (rank.comm_peer >= 0)
        peer = np.full(comms, -1, np.int64)
        peer[known] = rank.peers[rank.comm_peer[known]]
        sends = self.op == _SEND
        # A receive from any source meets nobody here: its own order among such receives keeps it apart.
        source = np.where(sends, rank.rank, peer)
        destination = np.where(sends, peer, rank.rank)
        self.key0 = group
        self.key1 = np.where(message, source, -2)
        self.key2 = np.where(message, destination, -2)
        self.key3 = np.where(message, rank.comm_tag.astype(np.int64), 0)
        self.key4 = rank.comm_seq
