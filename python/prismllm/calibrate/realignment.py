"""Partial re-alignment: some ranks were timed again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from prismllm import _calibrate
from prismllm.replay import Iteration, NetworkOptions
from prismllm.trace import Trace, load


@dataclass(frozen=True)
class Realignment:
    trace: Trace
    iterations: list[Iteration]  # of a calibrated trace
    visited: int  # nodes and parts of communications that were computed again, of `nodes`
    nodes: int


def realign(
    onto: Trace | str | os.PathLike,
    timed: Trace | str | os.PathLike,
    ranks: Sequence[int],
    network: NetworkOptions | None = None,
) -> Realignment:
    """`onto` with the compute spans of `ranks` from `timed`, which was recorded of the same program. Where `onto` is
    calibrated, what is downstream of a change is computed again, with a network all; the answer is that of executing
    all again. Where it was only timed in slices, it is left to be calibrated.

    ValueError for ranks that are not there or have no times, RuntimeError with the first difference where the structure
    has changed."""
    onto, timed = (one if isinstance(one, Trace) else load(one) for one in (onto, timed))
    done = _calibrate.realign(onto.graph, timed.graph, list(ranks), network.native() if network else None)
    iterations = [Iteration(one.index, one.time_ns / 1e9, one.rank) for one in done.report.iterations]
    return Realignment(Trace(_calibrate.realigned_trace(onto.graph, done)), iterations, done.visited, done.nodes)
