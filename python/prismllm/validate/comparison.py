"""The error table: real runs beside predicted executions, figure by figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np

from prismllm import _graph
from prismllm.validate.execution import Execution, Prediction
from prismllm.validate.printed import apart
from prismllm.validate.rows import Figure, Row

_ACCEPTED = 0.01
_ACCEPTED_LOSS = 1e-6
_SPAN_S = 1e-3  # shorter compute spans say more about the processor than about the job
_QUANTILE = 0.95
_COMPUTE, _WAIT = _graph.NODE_KINDS.index("compute"), _graph.NODE_KINDS.index("wait")

Number = Callable[[Execution], float]


def table(real: list[Execution], predictions: Mapping[str, Prediction], sandbox: tuple[int, ...]) -> list[Row]:
    """Of the whole job; where chosen ranks were emulated also of these alone, with the calibrated figures of the same
    ranks beside the emulated ones."""
    parts = [_Comparison(real, {"calibrated": predictions["calibrated"]}, real[0].ranks)]
    if "emulated" in predictions:
        parts.append(_Comparison(real, predictions, list(sandbox)))
    rows = [row for part in parts for row in part.rows()]
    return list({(row.figure, row.of): row for row in rows}.values())  # of a rank: the one that has both


class _Comparison:
    """Of these ranks. Nodes are compared where a rank has the same structure in all executions."""

    def __init__(self, real: list[Execution], predictions: Mapping[str, Prediction], ranks: list[int]):
        self.real, self.predictions, self.ranks = real, predictions, ranks
        executions = [*real, *(one.execution for one in predictions.values())]
        self.alike = [rank for rank in ranks if len({one.timelines[rank].structure for one in executions}) == 1]
        self.iteration_s = float(np.median([run.slowest_s(ranks) for run in real]))
        self.job = ranks == real[0].ranks
        self.who = "all ranks" if self.job else shortened(ranks)

    def rows(self) -> list[Row]:
        rows = [
            self._of_numbers("iteration", f"slowest of {self.who}", lambda run: run.slowest_s(self.ranks), self.job)
        ]
        if self.job and all(run.printed_s for run in self.real):
            rows.append(self._of_numbers("iteration as printed", f"slowest of {self.who}", _printed, True))
        rows.append(self._structure())
        if self.alike:
            rows += self._of_differences("span starts", self._starts)
            rows += self._of_differences("span durations", self._durations, of_span=True)
            rows += self._of_differences("waits", self._waits)
        if self.job:
            rows += self._waiting()
        rows += [row for rank in self.ranks for row in self._losses(rank)]
        rows += [self._of_numbers("iteration", f"rank {rank}", lambda run, rank=rank: run.rank_s(rank))
                 for rank in self.ranks]  # fmt: skip
        return rows + [self._memory(rank) for rank in self.ranks]

    def _of_numbers(self, figure: str, of: str, number: Number, known: bool = False, of_iteration=False) -> Row:
        """`known`: Prediction.iteration_s, where there is one, is the number."""
        each = [number(run) for run in self.real]
        real = float(np.median(each))
        beside = (self.iteration_s if of_iteration else real) or math.inf
        spread = (max(each) - min(each)) / beside
        bound = max(_ACCEPTED, spread)
        predicted = {}
        for name, one in self.predictions.items():
            value = (known and one.iteration_s) or number(one.execution)
            error = (value - real) / beside
            predicted[name] = Figure(value, error, abs(error) <= bound)
        return Row(figure, of, "s", "iteration" if of_iteration else "itself", real, spread, bound, predicted)

    def _structure(self) -> Row:
        """How many ranks did the same as in the first real run."""

        def alike(run: Execution) -> int:
            return sum(run.timelines[rank].structure == self.real[0].timelines[rank].structure for rank in self.ranks)

        every, least = len(self.ranks), min(map(alike, self.real))
        predicted = {name: Figure(alike(one.execution), alike(one.execution) - every, alike(one.execution) >= least)
                     for name, one in self.predictions.items()}  # fmt: skip
        return Row("same structure", self.who, "ranks", "ranks", every, every - least, every - least, predicted)

    def _of_differences(self, figure: str, values: Callable[[Execution], np.ndarray], of_span=False) -> list[Row]:
        """The quantile of |differences| from the median of the runs, beside the largest of that between two runs.
        `values`: seconds, [places] in one order for all executions."""
        each = np.stack([values(run) for run in self.real])
        middle = np.median(each, axis=0)
        chosen = middle >= _SPAN_S if of_span else np.full(len(middle), True)
        if not chosen.any():
            return []
        scale = middle[chosen] if of_span else self.iteration_s

        def far(a: np.ndarray, b: np.ndarray) -> float:
            return float(np.quantile(np.abs(a - b)[chosen] / scale, _QUANTILE))

        spread = max((far(a, b) for a, b in itertools.combinations(each, 2)), default=0.0)
        bound = max(_ACCEPTED, spread)
        errors = {name: far(values(one.execution), middle) for name, one in self.predictions.items()}
        predicted = {name: Figure(None, error, error <= bound) for name, error in errors.items()}
        return [Row(figure, f"p95 of {self.who}", "", "span" if of_span else "iteration", None, spread, bound,
                    predicted)]  # fmt: skip

    def _joined(self, of_rank: Callable) -> np.ndarray:
        return np.concatenate([of_rank(rank, self.real[0].places[rank]) for rank in self.alike]) / 1e9

    def _starts(self, run: Execution) -> np.ndarray:
        return self._joined(
            lambda rank, places: places.medians(run.timelines[rank].start_ns, run.begins_ns(self.ranks, rank))
        )

    def _durations(self, run: Execution, kind: int = _COMPUTE) -> np.ndarray:
        return self._joined(lambda rank, places: places.medians(run.timelines[rank].duration_ns)[places.kind == kind])

    def _waits(self, run: Execution) -> np.ndarray:
        return self._durations(run, _WAIT)

    def _waiting(self) -> list[Row]:
        """By operation and shape of its groups: until the last member had come, of an iteration and a rank that takes
        part."""
        names = sorted({name for rank in self.alike for name in self.real[0].places[rank].operation if name})

        def of(run: Execution, name: str) -> float:
            sums = []
            for rank in self.alike:
                places = self.real[0].places[rank]
                here = np.asarray([one == name for one in places.operation], bool)
                if here.any():
                    sums.append((places.medians(run.timelines[rank].waiting_ns) * places.weight)[here].sum() / 1e9)
            return float(np.mean(sums))

        return [self._of_numbers("waiting", name, lambda run, name=name: of(run, name), of_iteration=True)
                for name in names]  # fmt: skip

    def _memory(self, rank: int) -> Row:
        each = [run.timelines[rank].peak_memory_bytes for run in self.real]
        real, spread = float(np.median(each)), max(each) - min(each)
        predicted = {}
        for name, one in self.predictions.items():
            value = one.execution.timelines[rank].peak_memory_bytes
            predicted[name] = Figure(value, value - real, abs(value - real) <= spread)
        return Row("peak memory", f"rank {rank}", "bytes", "bytes", real, spread, spread, predicted)

    def _losses(self, rank: int) -> list[Row]:
        """Values are the last ones; errors the largest of all that the rank printed."""
        if not all(run.losses.get(rank) for run in self.real):
            return []
        first = self.real[0].losses[rank]
        spread = max(apart(first, run.losses[rank]) for run in self.real)
        bound = max(_ACCEPTED_LOSS, spread)
        predicted = {}
        for name, one in self.predictions.items():
            own = one.execution.losses.get(rank) or [math.nan]
            error = apart(first, own)
            predicted[name] = Figure(own[-1] if math.isfinite(own[-1]) else None,
                                     error if math.isfinite(error) else None, error <= bound)  # fmt: skip
        return [Row("losses", f"rank {rank}", "", "itself", first[-1], spread, bound, predicted)]


def _printed(run: Execution) -> float:
    return run.printed_s or run.slowest_s(run.ranks)


def shortened(ranks: list[int]) -> str:
    """ranks 0-3,8"""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ("rank " if len(ranks) == 1 else "ranks ") + ",".join(
        str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts
    )
