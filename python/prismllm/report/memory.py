"""Memory by rank: peaks of all, the course of time of some."""

from __future__ import annotations

import numpy as np

from prismllm.trace import Rank, Trace

_MOST_POINTS = 800  # of one rank
_MOST_RANKS = 8  # as many as a legend holds


def memory(trace: Trace, peaks: list[int], ranks: list[int], origin_ns: int) -> dict:
    """{"peaks" [all ranks] bytes, "series": [{rank, at_ms, bytes}]}, the series for at most 8 ranks: the one with the
    highest peak, and others evenly from `ranks`."""
    held = [r for r in ranks if len(trace.rank(r).memory.node)]
    chosen = []
    if held:
        evenly = np.linspace(0, len(held) - 1, _MOST_RANKS - 1).astype(int).tolist()
        chosen = sorted({trace.ranks[int(np.argmax(peaks))], *(held[i] for i in evenly)})
    return {"peaks": peaks, "series": [_series(trace.rank(r), origin_ns) for r in chosen]}


def _series(rank: Rank, origin_ns: int) -> dict:
    """A step curve whose bins keep their highest peak, so that no maximum is lost."""
    steps = rank.memory
    at = rank.start_ns[steps.node] + rank.duration_ns[steps.node] - origin_ns
    order = np.argsort(at, kind="stable")  # lanes end their nodes in turn
    at, held, peak = at[order], steps.bytes[order], steps.peak[order]
    bins = max(1, -(-len(at) // (_MOST_POINTS // 2)))
    first = np.arange(0, len(at), bins)
    last = np.append(first[1:], len(at)) - 1
    highest = np.maximum.reduceat(peak, first)
    times = np.stack([at[first], at[last]], 1).ravel() / 1e6
    values = np.stack([highest, held[last]], 1).ravel()
    return {"rank": rank.rank, "at_ms": np.round(times, 4).tolist(), "bytes": values.tolist()}
