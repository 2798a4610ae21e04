"""What ranks have computed, run by run, from the fragments that they leave behind."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prismllm.timing.repetitions import repetitions, warm_up
from prismllm.trace import Trace, load


class Took:
    """Of each rank the run of median computation counts. Iterations are those of the trace that is timed."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self._runs: dict[int, list[tuple[int, str, np.ndarray]]] = {}  # ns in all, fragment, ns in each iteration

    def add(self, fragments: Iterable[str], only: frozenset[int] | None = None) -> None:
        for fragment in fragments:
            own = load(fragment)
            rank = own.ranks[0]
            if only is not None and rank not in only:
                continue
            columns, base = own.rank(rank), self.trace.rank(rank)
            same = len(columns.node_kind) == len(base.node_kind)  # else the structure will be found to differ
            marks = base.mark_node if same else base.mark_node[:0]
            each = repetitions(marks, columns.node_kind, columns.node_lane, columns.duration_ns)
            self._runs.setdefault(rank, []).append((int(each.sum()), fragment, each))

    @property
    def ranks(self) -> list[int]:
        return sorted(self._runs)

    def fragment(self, rank: int) -> str:
        return self._median(rank)[1]

    def iterations(self, rank: int) -> np.ndarray:
        """[iterations] ns"""
        return self._median(rank)[2]

    def steady(self, rank: int, dropped: int) -> np.ndarray:
        """The iterations without the first `dropped`, and without the last, which has what follows the loop in it."""
        each = self.iterations(rank)
        return each[dropped : -1 if len(each) > dropped + 1 else None]

    def _median(self, rank: int) -> tuple[int, str, np.ndarray]:
        runs = sorted(self._runs[rank], key=lambda run: run[:2])
        return runs[(len(runs) - 1) // 2]


def classes_that_differ(took: Took, classes: list[list[int]], wanted_warm_up: int | None) -> list[list[int]]:
    """Those whose timed members differ by more than what each of them differs from itself, and have others."""
    found = []
    for members in classes:
        timed = [rank for rank in members if rank in took.ranks]
        own = [took.steady(rank, warm_up(len(took.iterations(rank)), wanted_warm_up)) for rank in timed]
        if len(own) < 2 or len(timed) == len(members):
            continue
        medians = [float(np.median(one)) for one in own]
        spread = max(float(np.quantile(one, 0.95) - np.quantile(one, 0.05)) for one in own)
        if max(medians) - min(medians) > spread:
            found.append(members)
    return found
