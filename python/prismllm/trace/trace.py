"""The classes of prismllm.trace."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from prismllm import _graph

if TYPE_CHECKING:
    from prismllm.analysis.tables import Frames, Tables


@dataclass(frozen=True)
class Group:
    """A process group: `members[i]` is the global rank of group rank i (int32)."""

    id: int
    name: str
    members: np.ndarray


@dataclass(frozen=True)
class Memory:
    """A step function, one entry a step: at the end of node `node[i]`, `bytes[i]` were in use, and at most `peak[i]`
    since the step before."""

    node: np.ndarray
    bytes: np.ndarray
    peak: np.ndarray


class Rank:
    """One recorded rank. Columns named node_* and the times have one entry a node, comm_* one a communication."""

    def __init__(self, trace: Trace, rank: int):
        self.trace, self.rank = trace, rank
        self.class_id = int(trace.rank_class[rank])
        if self.class_id < 0:
            raise ValueError(f"rank {rank} was not recorded in {trace.path or 'the trace'}")
        # What is wrong with the rank's values in the file is raised here.
        self.start_ns, self.duration_ns = trace.graph.timing(rank)
        self.columns: dict[str, np.ndarray] = trace.structure(self.class_id)

    def __getattr__(self, name: str) -> np.ndarray:
        """The columns of the rank's class as attributes: node_kind, comm_op, edge_src, ..."""
        try:
            return self.__dict__["columns"][name]
        except KeyError:
            raise AttributeError(f"a rank has no column '{name}'") from None

    def __repr__(self) -> str:
        return f"Rank({self.rank}, class {self.class_id}, {len(self.node_kind)} nodes)"

    @property
    def end_ns(self) -> np.ndarray:
        """A new array: start_ns + duration_ns."""
        return self.start_ns + self.duration_ns

    def is_kind(self, kind: str) -> np.ndarray:
        """[nodes] bool: nodes of this kind ("compute", "issue", "transfer", "wait")."""
        return self.node_kind == _graph.NODE_KINDS.index(kind)

    def is_op(self, op: str) -> np.ndarray:
        """[comms] bool: communications of this operation ("all_reduce", "send", ...)."""
        return self.comm_op == _graph.OPS.index(op)

    @cached_property
    def lanes(self) -> list[str]:
        """Names of the lanes; node_lane indexes them."""
        return [self.trace.strings[i] for i in self.columns["lane_name"]]

    @cached_property
    def groups(self) -> list[Group]:
        """Groups by slot; comm_group indexes them."""
        return [self.trace.groups[i] for i in self.trace.graph.group_slots(self.rank)]

    @cached_property
    def peers(self) -> np.ndarray:
        """Global ranks by peer slot; comm_peer of sends and receives indexes them (-1: any source)."""
        return self.trace.graph.peer_slots(self.rank)

    @cached_property
    def memory(self) -> Memory:
        return Memory(*self.trace.graph.memory(self.rank))

    def name_of(self, node: int) -> str:
        """The name of a node, "" where it has none."""
        index = int(self.columns["node_name"][node])
        return self.trace.strings[index] if index < len(self.trace.strings) else ""

    def communication_at(self, node: int) -> str:
        """The communication that a node is of, or the last one before it: "broadcast 2 of group '0'"; "" before the
        first."""
        comms = self.node_comm[: node + 1]
        before = np.flatnonzero(comms >= 0)
        if not len(before):
            return ""
        comm = comms[before[-1]]
        op, group = _graph.OPS[self.comm_op[comm]], self.groups[self.comm_group[comm]].name
        what = f"{op} {self.comm_seq[comm]} of group '{group}'"
        return what if before[-1] == node else f"after {what}"


class Trace:
    """A trace; `graph` is the C++ object that it reads."""

    def __init__(self, graph: _graph.Graph, path: str | None = None):
        self.graph, self.path = graph, path
        self.world_size: int = graph.world_size
        self.progress_model: str = graph.progress_model
        self.timed: bool = graph.timed
        self.rank_class: np.ndarray = graph.rank_class
        self._structures: dict[int, dict[str, np.ndarray]] = {}
        self._ranks: dict[int, Rank] = {}

    def __repr__(self) -> str:
        return f"Trace({self.path!r}, {self.world_size} ranks, {self.class_count} classes)"

    @property
    def class_count(self) -> int:
        return self.graph.class_count

    @cached_property
    def strings(self) -> list[str]:
        return self.graph.strings

    @cached_property
    def metadata(self) -> dict:
        """Provenance: program, torch version, host, options, ..."""
        return json.loads(self.graph.metadata_json)

    @cached_property
    def groups(self) -> list[Group]:
        return [Group(i, name, self.graph.group_members(i)) for i, name in enumerate(self.graph.group_names)]

    @cached_property
    def ranks(self) -> list[int]:
        """The recorded ranks."""
        return np.flatnonzero(self.rank_class >= 0).tolist()

    def rank(self, rank: int) -> Rank:
        """One rank. IndexError outside the world; ValueError if it was not recorded or its values break the format."""
        if rank not in self._ranks:
            if not 0 <= rank < self.world_size:
                raise IndexError(f"rank {rank}; accepted: 0 to {self.world_size - 1}")
            self._ranks[rank] = Rank(self, rank)
        return self._ranks[rank]

    def structure(self, class_id: int) -> dict[str, np.ndarray]:
        """The columns of one class by name. ValueError if its values break the format."""
        if class_id not in self._structures:
            self._structures[class_id] = self.graph.structure(class_id)
        return self._structures[class_id]

    @cached_property
    def tables(self) -> Tables:
        """Spans, communications, collectives, ranks, iterations, the critical path and memory as pyarrow tables: of the
        times that the trace has, or of its replay (prismllm.replay.as_recorded)."""
        from prismllm.analysis.tables import Tables
        from prismllm.replay import as_recorded

        return Tables(as_recorded(self))

    @property
    def frames(self) -> Frames:
        """The same as pandas frames."""
        return self.tables.frames

    def validate(self) -> None:
        """Checks every value, and that collectives and messages agree between ranks. ValueError names what does not."""
        _graph.validate(self.graph)

    def write(self, path: str | os.PathLike) -> None:
        """Writes a .prism file: complete, or OSError and nothing."""
        _graph.write(self.graph, os.fsencode(path))


def load(path: str | os.PathLike, check: bool = False) -> Trace:
    """Opens a .prism file by mapping it: milliseconds, whatever its size. Values are checked before their first use, or
    all at once with `check`. OSError where the file cannot be read, ValueError where it breaks the format."""
    path = os.fspath(path)
    return Trace(_graph.open(os.fsencode(path), check), path)
