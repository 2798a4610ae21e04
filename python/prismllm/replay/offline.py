"""One replay: what is changed, and its figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from prismllm import _replay
from prismllm.replay.critical_path import CriticalPath, Late, late_comers
from prismllm.replay.network import NetworkOptions, NetworkUse
from prismllm.replay.scenario import Links, Scenario
from prismllm.replay.what_if import Communication, Edit, Overlap
from prismllm.trace import Trace, load

if TYPE_CHECKING:
    from prismllm.analysis.tables import Frames, Tables

_LATE_IN_JSON, _PATH_IN_JSON = 100, 1000
_NOTHING = Scenario()


@dataclass(frozen=True)
class Iteration:
    """From mark to mark, the longest of all ranks."""

    index: int
    time_s: float
    rank: int  # that took so long


@dataclass(frozen=True)
class Rank:
    """busy: compute and issue, summed over lanes. A wait is waiting until its transfer could start because the last
    member had come, and exposed communication from then on.

    bubble: what a pipeline stage idles because of other stages, ranks with which messages join it: it waits for their
    messages, or until one of them comes last to a collective (both are waiting, too), or is done when they are not."""

    rank: int
    busy_s: float
    exposed_comm_s: float
    waiting_s: float
    bubble_s: float
    peak_memory_bytes: int
    peak_memory_at_s: float  # the end of the first node that saw it


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

    @cached_property
    def path(self) -> CriticalPath:
        """What the time of each iteration is made of, across ranks."""
        return CriticalPath(self.trace, self._report.path())

    def late(self, most: int = _LATE_IN_JSON) -> tuple[list[Late], dict]:
        """Collectives for whose last member others waited, the longest waiting (summed over members) first, at most so
        many; how many others there are, and what was waited for them."""
        return late_comers(self.trace, self._report.collectives(), most)

    @cached_property
    def tables(self) -> Tables:
        """Spans, communications, ranks, ... as pyarrow tables; `frames` has them as pandas frames."""
        from prismllm.analysis.tables import Tables

        return Tables(self)

    @property
    def frames(self) -> Frames:
        return self.tables.frames

    def to_json(self) -> dict:
        """The keys of `prism replay --json`. The critical path is that of the iteration with the median time."""
        times = [iteration.time_s for iteration in self.iterations]
        median = int(np.argsort(times, kind="stable")[(len(times) - 1) // 2]) if times else 0
        hops, rest = self.path.longest(median, _PATH_IN_JSON)
        late, other_late = self.late(_LATE_IN_JSON)
        return {
            "iterations": [asdict(iteration) for iteration in self.iterations],
            "ranks": [asdict(rank) for rank in self.ranks],
            "critical_path_s": self.critical_path_s,
            "critical_path": [asdict(hop) for hop in hops],
            "critical_path_iteration": median,
            "critical_path_rest": rest,
            "late": [asdict(one) for one in late],
            "late_rest": other_late,
        } | ({"network": self.network.to_json()} if self.network else {})


def replay(
    trace: Trace | str | os.PathLike,
    edits: Sequence[Edit] = (),
    links: Links | None = None,
    network: NetworkOptions | None = None,
    communications: Sequence[Communication] = (),
    overlaps: Sequence[Overlap] = (),
    scenario: Scenario = _NOTHING,
) -> Replay:
    """Replays a trace or a `.prism` file; with a network its communication takes what it takes there. The edits of a
    scenario (load_scenario) come after the others. ValueError for an edit that matches nothing, a broken file or a
    network that cannot carry the job, RuntimeError where the trace cannot be executed to its end, with who waits for
    whom."""
    trace = trace if isinstance(trace, Trace) else load(trace)
    edits, overlaps = [*edits, *scenario.edits], [*overlaps, *scenario.overlaps]
    _check_scenario(trace, network, scenario)
    if scenario.link_edits:
        network = replace(network, link_edits=(*network.link_edits, *scenario.link_edits))
    if overlaps:
        if numbered := [i for i, edit in enumerate(edits) if edit.node is not None]:
            raise ValueError(f"edit {numbered[0]}: node = {edits[numbered[0]].node}; overlaps number nodes anew, "
                             "accepted: other keys")  # fmt: skip
        trace = Trace(_replay.overlapped(trace.graph, [one.native() for one in overlaps]))
    chosen = links or scenario.links or Links()
    report = _replay.replay(
        trace.graph,
        [edit.native() for edit in edits],
        round(chosen.latency_s * 1e9),
        chosen.bytes_per_second,
        network.native() if network else None,
        [one.native() for one in (*communications, *scenario.communications)],
    )
    return _replay_of(trace, report, network)


def as_recorded(trace: Trace | str | os.PathLike) -> Replay:
    """The same figures of the times that the trace has; of its replay where it has none, or none that can be compared
    between ranks (`notes` say so)."""
    trace = trace if isinstance(trace, Trace) else load(trace)
    return _replay_of(trace, _replay.as_recorded(trace.graph), None)


def _check_scenario(trace: Trace, network: NetworkOptions | None, scenario: Scenario) -> None:
    if scenario.link_edits and not (network and hasattr(network.topology, "graph")):
        raise ValueError("[[link]] changes the links of a cluster: give one (--comm)")
    if scenario.links and network:
        raise ValueError("[links] is of the closed form, which a network replaces; accepted: [[link]]")
    if scenario.links and _replay.transfers_are_timed(trace.graph):
        raise ValueError("[links] is of the closed form: the transfers of this trace have times of their own; "
                         "accepted: [[communication]], or a network (--comm)")  # fmt: skip


def _replay_of(trace: Trace, report: _replay.Report, network: NetworkOptions | None) -> Replay:
    ranks = [Rank(r.rank, r.busy_ns / 1e9, r.exposed_comm_ns / 1e9, r.waiting_ns / 1e9, r.bubble_ns / 1e9,
                  r.peak_memory_bytes, r.peak_memory_at_ns / 1e9) for r in report.ranks]  # fmt: skip
    iterations = [Iteration(i.index, i.time_ns / 1e9, i.rank) for i in report.iterations]
    use = NetworkUse.of(network, report) if network else None
    return Replay(iterations, ranks, report.critical_path_ns / 1e9, report.notes, use, trace, report)


def retimed(
    trace: Trace | str | os.PathLike,
    edits: Sequence[Edit] = (),
    links: Links | None = None,
    network: NetworkOptions | None = None,
) -> Trace:
    """The trace with the times of its replay."""
    return replay(trace, edits, links, network).retimed()
