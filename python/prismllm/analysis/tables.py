"""A timeline as pyarrow tables and pandas frames, for notebooks.

    trace = prismllm.load("job.prism")
    trace.frames.spans.groupby("name").duration_s.sum()
    trace.tables.collectives.sort_by([("waited_s", "descending")]).slice(0, 10)

`spans` has a chunk for each rank, whose columns kind, start_ns and duration_ns are those of the trace or the replay,
without a copy. Times in seconds count from the first start of all ranks.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from prismllm import _graph
from prismllm.analysis.iterations import iterations_of_nodes
from prismllm.replay.critical_path import NOT_STARTED, describe

if TYPE_CHECKING:
    from prismllm.replay import Replay

try:
    import pyarrow as pa
except ImportError as missing:
    raise ModuleNotFoundError(
        "tables and frames need pyarrow and pandas, which are not installed: pip install 'prismllm[frames]'"
    ) from missing

_TRANSFER, _ISSUE = _graph.NODE_KINDS.index("transfer"), _graph.NODE_KINDS.index("issue")
_NONE = 0xFFFFFFFF
_SEND, _RECV = _graph.OPS.index("send"), _graph.OPS.index("recv")


def _names(indices: np.ndarray, dictionary: list[str], missing: np.ndarray | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=missing), pa.array(dictionary, pa.string()))


class Tables:
    """Of one replay (or of a record, as_recorded): spans, communications, collectives, ranks, iterations,
    critical_path, memory."""

    NAMES = ("spans", "communications", "collectives", "ranks", "iterations", "critical_path", "memory")

    def __init__(self, replay: Replay):
        self._replay, self._trace = replay, replay.trace
        self._groups = [group.name for group in self._trace.groups]
        self._iterations: dict[int, np.ndarray] = {}

    @cached_property
    def frames(self) -> Frames:
        return Frames(self)

    @cached_property
    def spans(self) -> pa.Table:
        """One row a node: rank, lane, kind, name, op, group, iteration (null before the first mark), node (its index in
        the rank), start_s, duration_s, start_ns, duration_ns."""
        return _joined([self._spans(rank) for rank in self._trace.ranks])

    @cached_property
    def communications(self) -> pa.Table:
        """One row for each rank's part in a communication: rank, comm (index in the rank), op, group, seq, peer (of
        messages, null: any), tag, input_bytes, output_bytes, iteration, issued_s, start_s (all whom it needs had come),
        end_s, waited_s (by this rank, until start_s)."""
        return _joined([self._communications(rank) for rank in self._trace.ranks])

    @cached_property
    def collectives(self) -> pa.Table:
        """One row a collective: op, group, seq, iteration, members, bytes, late_rank (came last), late_by_s (after the
        last but one), waited_s (by all members together), start_s (when the last had come), end_s."""
        columns = self._replay._report.collectives()
        iteration = np.full(len(columns["op"]), -1, np.int32)
        for rank in np.unique(columns["late_rank"]).tolist():
            own = columns["late_rank"] == rank
            nodes = _transfers(self._trace.rank(rank))[columns["late_comm"][own]]
            iteration[own] = self._iteration(rank)[nodes]
        return pa.table({
            "op": _names(columns["op"], _graph.OPS), "group": _names(columns["group"], self._groups),
            "seq": columns["seq"], "iteration": pa.array(iteration, mask=iteration < 0),
            "members": columns["members"], "bytes": columns["bytes"], "late_rank": columns["late_rank"],
            **{f"{name}_s": columns[f"{name}_ns"] / 1e9 for name in ("late_by", "waited", "start", "end")},
        })  # fmt: skip

    @cached_property
    def ranks(self) -> pa.Table:
        """One row a rank: rank, class, busy_s, exposed_comm_s, waiting_s, bubble_s, peak_memory_bytes,
        peak_memory_at_s."""
        rows = [{"rank": one.rank, "class": int(self._trace.rank_class[one.rank]), **vars(one)}
                for one in self._replay.ranks]  # fmt: skip
        return pa.Table.from_pylist(rows)

    @cached_property
    def iterations(self) -> pa.Table:
        """One row an iteration: index, time_s, rank (that took so long)."""
        return pa.Table.from_pylist([vars(one) for one in self._replay.iterations])

    @cached_property
    def critical_path(self) -> pa.Table:
        """One row a hop: iteration, rank, node, kind, what, start_s, duration_s; see prismllm.replay.CriticalPath."""
        columns = self._replay.path.columns
        named = [describe(self._trace, rank, node)
                 for rank, node in zip(columns["rank"].tolist(), columns["node"].tolist(), strict=True)]  # fmt: skip
        kinds, whats = zip(*named, strict=True) if named else ((), ())
        return pa.table({
            "iteration": columns["iteration"], "rank": columns["rank"],
            "node": pa.array(columns["node"], mask=columns["node"] == NOT_STARTED),
            "kind": pa.array(kinds, pa.string()).dictionary_encode(),
            "what": pa.array(whats, pa.string()).dictionary_encode(),
            "start_s": columns["start_ns"] / 1e9, "duration_s": columns["duration_ns"] / 1e9,
        })  # fmt: skip

    @cached_property
    def memory(self) -> pa.Table:
        """One row a step: rank, node, at_s (the node's end), bytes (in use from then on), peak_bytes (since the step
        before)."""
        parts = []
        for rank in self._trace.ranks:
            steps, (start_ns, duration_ns) = self._trace.rank(rank).memory, self._replay.timeline(rank)
            at_ns = start_ns[steps.node] + duration_ns[steps.node]
            parts.append(pa.table({"rank": np.full(len(at_ns), rank, np.int32), "node": steps.node,
                                   "at_s": at_ns / 1e9, "bytes": steps.bytes, "peak_bytes": steps.peak}))  # fmt: skip
        return _joined(parts)

    def _iteration(self, rank: int) -> np.ndarray:
        if rank not in self._iterations:
            start_ns, _ = self._replay.timeline(rank)
            self._iterations[rank] = iterations_of_nodes(self._trace.rank(rank), start_ns)
        return self._iterations[rank]

    def _group_ids(self, rank: int) -> np.ndarray:
        return np.asarray([group.id for group in self._trace.rank(rank).groups], np.int32)

    def _spans(self, number: int) -> pa.Table:
        rank = self._trace.rank(number)
        start_ns, duration_ns = self._replay.timeline(number)
        comm, iteration = rank.node_comm, self._iteration(number)
        no_comm = comm < 0
        of = np.where(no_comm, 0, comm)
        op, group = np.zeros(len(comm), np.uint8), np.zeros(len(comm), np.int32)
        if len(rank.comm_op):
            op, group = rank.comm_op[of], self._group_ids(number)[rank.comm_group[of]]
        names = rank.node_name
        return pa.table({
            "rank": np.full(len(comm), number, np.int32),
            "lane": _names(np.asarray(rank.lane_name)[rank.node_lane], self._trace.strings),
            "kind": _names(rank.node_kind, _graph.NODE_KINDS),
            "name": _names(np.where(names == _NONE, 0, names), self._trace.strings, names == _NONE),
            "op": _names(op, _graph.OPS, no_comm), "group": _names(group, self._groups, no_comm),
            "iteration": pa.array(iteration, mask=iteration < 0), "node": np.arange(len(comm), dtype=np.uint32),
            "start_s": start_ns / 1e9, "duration_s": duration_ns / 1e9,
            "start_ns": start_ns, "duration_ns": duration_ns,
        })  # fmt: skip

    def _communications(self, number: int) -> pa.Table:
        rank = self._trace.rank(number)
        start_ns, duration_ns = self._replay.timeline(number)
        ready_ns, waited_ns = self._replay._report.parts(number)
        comms, nodes = len(rank.comm_op), _transfers(rank)
        iteration = self._iteration(number)[nodes]
        never = ready_ns < 0  # nobody waited for one that did not come
        known = ((rank.comm_op == _SEND) | (rank.comm_op == _RECV)) & (rank.comm_peer >= 0)
        peer = np.full(comms, -1, np.int32)
        peer[known] = rank.peers[rank.comm_peer[known]]
        return pa.table({
            "rank": np.full(comms, number, np.int32), "comm": np.arange(comms, dtype=np.int32),
            "op": _names(rank.comm_op, _graph.OPS),
            "group": _names(self._group_ids(number)[rank.comm_group], self._groups), "seq": rank.comm_seq,
            "peer": pa.array(peer, mask=~known), "tag": rank.comm_tag,
            "input_bytes": rank.comm_input_bytes, "output_bytes": rank.comm_output_bytes,
            "iteration": pa.array(iteration, mask=iteration < 0),
            "issued_s": start_ns[nodes] / 1e9, "start_s": pa.array(ready_ns / 1e9, mask=never),
            "end_s": pa.array((start_ns[nodes] + duration_ns[nodes]) / 1e9, mask=never), "waited_s": waited_ns / 1e9,
        })  # fmt: skip


class Frames:
    """The tables as pandas frames, by the same names."""

    def __init__(self, tables: Tables):
        self._tables = tables

    def __getattr__(self, name: str):
        if name not in Tables.NAMES:
            raise AttributeError(f"no frame '{name}'; there are {', '.join(Tables.NAMES)}")
        frame = getattr(self._tables, name).unify_dictionaries().to_pandas()
        self.__dict__[name] = frame
        return frame

    def __dir__(self):
        return Tables.NAMES


def _transfers(rank) -> np.ndarray:
    """[comms] The transfer of each communication; its issue where it has none."""
    nodes = np.zeros(len(rank.comm_op), np.int64)
    for kind in (_ISSUE, _TRANSFER):
        of_kind = np.flatnonzero(rank.node_kind == kind)
        nodes[rank.node_comm[of_kind]] = of_kind
    return nodes


def _joined(parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts) if parts else pa.table({})
