"""The figures of one trace that a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prismllm.analysis import Meetings, Operation, iteration_times, operations, usage, with_times
from prismllm.replay import Replay, as_recorded
from prismllm.trace import Trace
from prismllm.units import duration, share, size


@dataclass
class Tile:
    title: str
    value: str
    detail: str


class Summary:
    """One trace, with times."""

    def __init__(self, trace: Trace):
        self.timed = trace.timed
        self.recorded = trace
        self.trace, self.meaning = with_times(trace)
        self.meetings = Meetings(self.trace)
        self.usage = usage(self.trace, self.meetings)
        self.rank_times_ns = iteration_times(self.trace)  # [iterations, ranks]
        self.times_ns = (
            self.rank_times_ns.max(1) if self.rank_times_ns.size else np.zeros(0, np.int64)
        )  # the slowest rank

    @cached_property
    def causes(self) -> Replay | None:
        """What held the job up; None where a record contradicts itself."""
        try:
            return as_recorded(self.trace)
        except (ValueError, RuntimeError):
            return None

    @cached_property
    def peaks(self) -> list[int]:
        return [int(self.trace.rank(r).memory.peak.max(initial=0)) for r in self.trace.ranks]

    @cached_property
    def operations(self) -> list[Operation]:
        return operations(self.trace, self.meetings)

    def totals(self) -> tuple[int, int, int]:
        """(busy, exposed, waiting) ns over all ranks and iterations; over the whole trace where none is marked."""
        rows = slice(None, -1) if len(self.times_ns) else slice(-1, None)
        return tuple(int(part[rows].sum()) for part in (self.usage.busy, self.usage.exposed, self.usage.waiting))

    @property
    def median_s(self) -> float:
        return float(np.median(self.times_ns)) / 1e9 if len(self.times_ns) else self.length_s

    @cached_property
    def length_s(self) -> float:
        ranks = [self.trace.rank(r) for r in self.trace.ranks if len(self.trace.rank(r).start_ns)]
        return (max((int(r.end_ns.max()) for r in ranks), default=0)
                - min((int(r.start_ns.min()) for r in ranks), default=0)) / 1e9  # fmt: skip

    def straggler(self) -> tuple[int, int]:
        """(rank, ns that others waited for it)."""
        if not self.trace.ranks:
            return -1, 0
        worst = int(np.argmax(self.usage.caused))
        return self.trace.ranks[worst], int(self.usage.caused[worst])

    def most_memory(self) -> tuple[int, int]:
        """(rank, bytes)."""
        worst = int(np.argmax(self.peaks)) if self.peaks else 0
        return (self.trace.ranks[worst], self.peaks[worst]) if self.peaks else (-1, 0)

    def tiles(self) -> list[Tile]:
        busy, exposed, waiting = self.totals()
        whole = busy + exposed + waiting
        if len(self.times_ns):
            low, high = (duration(t / 1e9) for t in np.percentile(self.times_ns, [5, 95]))
            spread = f"median of {len(self.times_ns)}; 5% to 95%: {low} to {high}"
            time = Tile("Iteration time", duration(self.median_s), spread)
        else:
            time = Tile("Length", duration(self.length_s), "no iterations are marked")
        rank, caused = self.straggler()
        late = Tile("Most waited for", "nobody", "no rank waited")
        if caused:
            part = share(caused, int(self.usage.waiting[-1].sum()))
            late = Tile("Most waited for", f"rank {rank}", f"{part} of all waiting ends when it comes")
        rank, peak = self.most_memory()
        memory = Tile("Peak memory", "-", "not recorded")
        if peak:
            memory = Tile("Peak memory", size(peak), f"rank {rank}; median rank {size(float(np.median(self.peaks)))}")
        return [
            time,
            Tile("Busy", share(busy, whole), "computing or issuing"),
            Tile("Exposed communication", share(exposed, whole), "held up by a transfer under way"),
            Tile("Waiting for peers", share(waiting, whole), "held up until others had come"),
            memory,
            late,
        ]

    def header(self) -> list[tuple[str, str]]:
        meta = self.trace.metadata
        program = meta.get("program", "unknown")
        sizes = sorted({len(g.members) for g in self.trace.groups})
        rows = [
            ("Program", " ".join(map(str, program)) if isinstance(program, list) else str(program)),
            ("Ranks", _count(self.trace.world_size, len(self.trace.ranks))),
            ("Rank classes", f"{self.trace.class_count} (ranks of one class have one structure)"),
            ("Groups", f"{len(self.trace.groups)}, of {_listed(sizes)} ranks" if sizes else "none"),
            ("Backend", self.trace.progress_model),
            ("PyTorch", str(meta.get("torch", "unknown"))),
            ("Host", str(meta.get("host", "unknown"))),
            ("Times", "recorded" if self.timed else "replayed"),
        ]
        return rows + [("Note", str(note)) for note in meta.get("notes", [])]


def _count(world: int, recorded: int) -> str:
    return str(world) if world == recorded else f"{world}, of which {recorded} were recorded"


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values)) if len(values) <= 6 else f"{values[0]} to {values[-1]}"
