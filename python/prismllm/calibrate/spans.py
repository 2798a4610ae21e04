"""How long each span lasts, over the repetitions of its iteration."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from prismllm import _calibrate
from prismllm.trace import Trace, load


@dataclass(frozen=True)
class SpanQuantiles:
    """Of one rank, one entry for each compute span and issue of an iteration, for each structure that iterations have
    (a checkpoint every third step makes two)."""

    rank: int
    iterations: list[int]  # after warm-up, of one structure
    node: np.ndarray  # [iterations, places]: node of the trace in each place
    duration_s: np.ndarray  # [iterations, places]
    p05_s: np.ndarray  # [places], as the next two
    p50_s: np.ndarray
    p95_s: np.ndarray


def span_quantiles(trace: Trace | str | os.PathLike, rank: int | None = None,
                   warmup: int | None = None) -> list[SpanQuantiles]:  # fmt: skip
    """Of a timed trace, for one rank or for all. A calibrated trace holds one execution: its repetitions are drawn."""
    if not isinstance(trace, Trace):
        trace = load(trace)
    repetitions = _calibrate.Repetitions(trace.graph, warmup)
    result = []
    for one in trace.ranks if rank is None else [rank]:
        for iterations, node, duration_ns in repetitions.of(one):
            duration = duration_ns / 1e9
            p05, p50, p95 = np.quantile(duration, [0.05, 0.5, 0.95], axis=0)
            result.append(SpanQuantiles(one, iterations, node, duration, p05, p50, p95))
    return result
