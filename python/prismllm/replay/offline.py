"""One replay: what is changed, and its figures."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real

import numpy as np

from prismllm import _replay
from prismllm.replay.network import NetworkOptions, NetworkUse
from prismllm.trace import Trace, load

_RANGES = {"scale": (Real, 0, 10**9), "add_s": (Real, -9 * 10**9, 9 * 10**9)}  # of an edit; NaN is in no range


def shown(value) -> str:
    """A value for an error's one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


@dataclass(frozen=True)
class Edit:
    """A what-if: the duration d of every compute span that matches becomes scale * d + add_s. What is None matches all.

    `node` names one node of `rank` by its index."""

    rank: int | None = None
    iteration: int | None = None
    name: str | None = None
    node: int | None = None
    scale: float = 1.0
    add_s: float = 0.0

    def __post_init__(self):
        for key, value in vars(self).items():
            kind, low, high = (str, "", "") if key == "name" else _RANGES.get(key, (Integral, 0, 2**31 - 1))
            right = isinstance(value, kind) and not isinstance(value, bool)
            if (right and (kind is str or low <= value <= high)) or (value is None and key not in _RANGES):
                continue
            raise ValueError(f"{key} = {shown(value)}; accepted: " + ("text" if kind is str else f"{low} to {high}"))


@dataclass(frozen=True)
class Links:
    """For traces without measured communication: a message of c bytes takes latency_s + c / bytes_per_second."""

    latency_s: float = 20e-6
    bytes_per_second: float = 1.25e9


@dataclass(frozen=True)
class Iteration:
    """From mark to mark, the longest of all ranks."""

    index: int
    time_s: float


@dataclass(frozen=True)
class Rank:
    """busy: compute and issue, summed over lanes. A wait is waiting until its transfer could start because the last
    member had come, and exposed communication from then on."""

    rank: int
    busy_s: float
    exposed_comm_s: float
    waiting_s: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class Replay:
    iterations: list[Iteration]
    ranks: list[Rank]  # recorded ranks
    critical_path_s: float
    notes: list[str]  # what a reader must know to trust the numbers
    network: NetworkUse | None  # of a replay on a network
    trace: Trace = field(repr=False)  # what was replayed
    _report: _replay.Report = field(repr=False)

    def timeline(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """(start_ns, duration_ns), one entry a node, in ns since the first rank's first node started."""
        return self._report.timeline(rank)

    def retimed(self) -> Trace:
        """The trace with the times of this replay."""
        return Trace(_replay.retimed(self.trace.graph, self._report))

    def to_json(self) -> dict:
        """The keys of `prism replay --json`."""
        return {
            "iterations": [asdict(iteration) for iteration in self.iterations],
            "ranks": [asdict(rank) for rank in self.ranks],
            "critical_path_s": self.critical_path_s,
        } | ({"network": self.network.to_json()} if self.network else {})


def replay(
    trace: Trace | str | os.PathLike,
    edits: list[Edit] = (),
    links: Links = Links(),
    network: NetworkOptions | None = None,
) -> Replay:
    """Replays a trace or a `.prism` file; with a network its communication takes what it takes there. ValueError for an
    edit that matches nothing, a broken file or a network that cannot carry the job, RuntimeError where the trace cannot
    be executed to its end, with who waits for whom."""
    if not isinstance(trace, Trace):
        trace = load(trace)
    report = _replay.replay(
        trace.graph,
        [_replay.SpanEdit(rank=e.rank, iteration=e.iteration, name=e.name, node=e.node, scale=e.scale,
                          add_ns=round(e.add_s * 1e9)) for e in edits],
        round(links.latency_s * 1e9),
        links.bytes_per_second,
        network.native() if network else None,
    )  # fmt: skip
    ranks = [Rank(r.rank, r.busy_ns / 1e9, r.exposed_comm_ns / 1e9, r.waiting_ns / 1e9, r.peak_memory_bytes)
             for r in report.ranks]  # fmt: skip
    iterations = [Iteration(i.index, i.time_ns / 1e9) for i in report.iterations]
    use = NetworkUse.of(network, report) if network else None
    return Replay(iterations, ranks, report.critical_path_ns / 1e9, report.notes, use, trace, report)


def retimed(
    trace: Trace | str | os.PathLike,
    edits: list[Edit] = (),
    links: Links = Links(),
    network: NetworkOptions | None = None,
) -> Trace:
    """The trace with the times of its replay."""
    return replay(trace, edits, links, network).retimed()
