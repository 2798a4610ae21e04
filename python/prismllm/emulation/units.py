"""Units of a health check: what a rank can be put on, and what the runs say of them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np


def move_to(processor: int | None = None, slowed: float = 1.0) -> None:
    """In a rank, before its program. `slowed`: its sleeps, which stand for a device, last so many times as long."""
    if processor is not None:
        os.sched_setaffinity(0, {processor})
    if slowed != 1.0:
        time.sleep = _slowed(time.sleep, slowed)


def _slowed(sleep, factor: float):
    def slowed_sleep(seconds, /):
        sleep(seconds * factor)

    return slowed_sleep


def pairs_of(units: tuple[int, ...]) -> list[tuple[int, int]]:
    """Each unit once in the role of the first rank, and once in that of the second, beside its neighbours."""
    return [(unit, units[(i + 1) % len(units)]) for i, unit in enumerate(units)]


@dataclass(frozen=True)
class Verdict:
    unit: int
    iteration_time_s: float  # of the pairs that it was in, the median
    busy_s: float  # computing in an iteration, the median over its two roles
    slower_by: float  # than the median unit in the same role, the smaller of its two roles
    ok: bool


def verdicts(units: tuple[int, ...], runs: dict[tuple[int, int], list[dict]], tolerance: float) -> list[Verdict]:
    """`runs`: of each pair what its two ranks took: iter_s and busy_s, in the order of roles.

    A unit is slow where it needs more than 1 + tolerance of what the median of the other units needs in the same role,
    in both roles: what slows one run alone is no property of the unit."""
    busy = {unit: [0.0, 0.0] for unit in units}
    took = {unit: [] for unit in units}
    for pair, ranks in runs.items():
        for role, unit in enumerate(pair):
            busy[unit][role] = ranks[role]["busy_s"]
            took[unit].append(ranks[role]["iter_s"])
    found = []
    for unit in units:
        slower = [
            busy[unit][role] / usual - 1.0
            for role in (0, 1)
            if (usual := float(np.median([busy[other][role] for other in units if other != unit]))) > 0
        ]
        least = min(slower, default=0.0)
        found.append(
            Verdict(unit, float(np.median(took[unit])), float(np.median(busy[unit])), least, least <= tolerance)
        )
    return found
