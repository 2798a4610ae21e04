"""What one execution of the job was like: a real run, or a predicted one. Read from its trace at once, so that it does
not matter what becomes of the file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from prismllm import _graph
from prismllm.analysis import Meetings, iteration_bounds, iterations_of_nodes, split_waits
from prismllm.analysis.operations import group_shape
from prismllm.timing import warm_up
from prismllm.trace import Rank, Trace

_TRANSFER = _graph.NODE_KINDS.index("transfer")


@dataclass(frozen=True)
class Timeline:
    """One rank. Its nodes can be compared with those of another execution where `structure` is equal."""

    structure: str
    start_ns: np.ndarray  # [nodes]
    duration_ns: np.ndarray  # [nodes]
    waiting_ns: np.ndarray  # [nodes] of waits: until the last member had come
    bounds_ns: np.ndarray  # [iterations + 1]
    closed: bool  # a mark ends the last iteration
    peak_memory_bytes: int


@dataclass(frozen=True)
class Places:
    """A rank's nodes in the counted iterations, transfers apart. Nodes in one place of iterations that have one
    structure are repetitions of each other.

    nodes       one array [repetitions, places] for each structure that iterations have on a lane
    iterations  [repetitions] of each of them
    """

    nodes: list[np.ndarray]
    iterations: list[np.ndarray]
    kind: np.ndarray  # [places] of all of them, as the next
    operation: list[str]  # what a wait ends with: "all_reduce, all 8 ranks"; "" elsewhere
    weight: np.ndarray  # [places] repetitions beside the counted iterations

    def medians(self, values: np.ndarray, begins: np.ndarray | None = None) -> np.ndarray:
        """[places] of [nodes] values; from the begin of their iteration on, where [iterations] begins are given."""
        found = [np.zeros(0)]
        for nodes, iterations in zip(self.nodes, self.iterations, strict=True):
            taken = values[nodes]
            if begins is not None:
                taken = taken - begins[iterations][:, None]
            found.append(np.median(taken, axis=0))
        return np.concatenate(found)


@dataclass(frozen=True)
class Execution:
    timelines: dict[int, Timeline]  # of recorded ranks
    places: dict[int, Places]
    counted: range  # iterations without the warm-up, and without a last one that no mark ends
    one_clock: bool  # starts can be compared between ranks
    losses: dict[int, list[float]] = field(default_factory=dict)
    printed_s: float | None = None  # the iteration time, as the program tells it

    @staticmethod
    def of(trace: Trace, losses: dict[int, list[float]] | None = None) -> Execution:
        """ValueError where nothing could be compared."""
        meetings = Meetings(trace)
        shapes = [group_shape(group.members, trace.world_size) for group in trace.groups]
        waits = {rank: _Waits(trace.rank(rank), meetings, shapes) for rank in trace.ranks}
        timelines = {rank: _timeline(trace.rank(rank), waits[rank].waiting_ns) for rank in trace.ranks}
        if unmarked := [rank for rank, own in timelines.items() if not len(own.bounds_ns)]:
            raise ValueError(f"rank {unmarked[0]} has no iterations; prismllm.iteration() in the program marks them")
        iterations = min(len(own.bounds_ns) - 1 for own in timelines.values())
        first = warm_up(iterations)
        if iterations < first + 1 or first < warm_up(1 << 20):
            raise ValueError(f"the program has {iterations} iterations; accepted: at least {warm_up(1 << 20) + 1}")
        closed = all(own.closed for own in timelines.values())
        counted = range(first, iterations if closed or iterations == first + 1 else iterations - 1)
        places = {rank: _places(trace.rank(rank), counted, waits[rank].operation) for rank in trace.ranks}
        return Execution(timelines, places, counted, isinstance(trace.metadata.get("clock_domain"), str),
                         losses or {})  # fmt: skip

    def iterations_s(self, rank: int) -> np.ndarray:
        """[counted]"""
        return np.diff(self.timelines[rank].bounds_ns)[self.counted.start : self.counted.stop] / 1e9

    def slowest_s(self, ranks: list[int]) -> float:
        """The median of the iterations, each of which takes as long as the slowest of these ranks."""
        return float(np.median(np.max([self.iterations_s(rank) for rank in ranks], axis=0)))

    def rank_s(self, rank: int) -> float:
        return float(np.median(self.iterations_s(rank)))

    def begins_ns(self, ranks: list[int], rank: int) -> np.ndarray:
        """[iterations] when the first of these ranks began; on several clocks, when the rank itself did."""
        among = ranks if self.one_clock else [rank]
        return np.min([self.timelines[one].bounds_ns[: self.counted.stop] for one in among], axis=0)

    @cached_property
    def ranks(self) -> list[int]:
        return sorted(self.timelines)


@dataclass(frozen=True)
class Prediction:
    """`iteration_s`: of the whole job, where it is known better than from one execution."""

    execution: Execution
    iteration_s: float | None = None
    figures: dict = field(default_factory=dict)  # what the command that made it says


class _Waits:
    def __init__(self, rank: Rank, meetings: Meetings, shapes: list[str]):
        nodes, waiting, comms = split_waits(rank, meetings.ready_ns[meetings.of_rank(rank.rank, len(rank.comm_op))])
        self.waiting_ns = np.zeros(len(rank.node_kind), np.int64)
        self.waiting_ns[nodes] = waiting
        self.operation = {}  # by node
        for node, comm in zip(nodes.tolist(), comms.tolist(), strict=True):
            if comm >= 0:
                group = shapes[rank.groups[rank.comm_group[comm]].id]
                self.operation[node] = f"{_graph.OPS[rank.comm_op[comm]]}, {group}"


def _timeline(rank: Rank, waiting_ns: np.ndarray) -> Timeline:
    digest = hashlib.sha256()
    for name in ("node_kind", "node_lane", "node_comm", "comm_op", "mark_node"):
        column = np.ascontiguousarray(getattr(rank, name))
        digest.update(f"{name} {len(column)} ".encode() + column.tobytes())
    bounds = iteration_bounds(rank).copy()
    return Timeline(digest.hexdigest(), rank.start_ns.copy(), rank.duration_ns.copy(), waiting_ns, bounds,
                    len(bounds) == len(rank.mark_node), int(rank.memory.peak.max(initial=0)))  # fmt: skip


def _places(rank: Rank, counted: range, operation: dict[int, str]) -> Places:
    iteration = iterations_of_nodes(rank, rank.start_ns)
    ops = np.append(rank.comm_op.astype(np.int64), -1)[rank.node_comm]
    groups: dict[tuple, tuple[list[np.ndarray], list[int]]] = {}
    for lane in range(len(rank.lanes)):
        own = np.flatnonzero((rank.node_lane == lane) & (rank.node_kind != _TRANSFER))
        for index in counted:
            nodes = own[iteration[own] == index]
            key = (lane, rank.node_kind[nodes].tobytes(), ops[nodes].tobytes())
            repetitions, indices = groups.setdefault(key, ([], []))
            repetitions.append(nodes)
            indices.append(index)
    nodes = [np.stack(repetitions) for repetitions, _ in groups.values()]
    iterations = [np.asarray(indices) for _, indices in groups.values()]
    firsts = np.concatenate([np.zeros(0, np.int64), *(one[0] for one in nodes)])
    return Places(nodes, iterations, rank.node_kind[firsts], [operation.get(node, "") for node in firsts.tolist()],
                  np.concatenate([np.zeros(0), *(np.full(one.shape[1], one.shape[0] / len(counted))
                                                 for one in nodes)]))  # fmt: skip
