"""The trace that `prism time` writes, from what the ranks have left behind."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from prismllm.cli.common import CommandError, replaying

if TYPE_CHECKING:  # it imports NumPy
    from prismllm.timing import Took


class Differs(CommandError):
    """The ranks have not done what the trace says."""


def words_of(first: dict, graph) -> str:
    """Of a difference between the trace and another."""
    from prismllm.cli.diff import _in_words

    return _in_words(first, graph).replace(" in A ", " in the trace ").removesuffix(" in B")


def _slices_of(timed) -> list[list[int]]:
    told = timed.metadata.get("timing", {}) if timed is not None else {}
    slices = told.get("slices", []) if isinstance(told, dict) else []
    return slices if isinstance(slices, list) and all(isinstance(one, list) for one in slices) else []


def write_timed(graph, before, network, took: Took, path: str, slices: list[list[int]], warmup: int | None,
                among_peers: bool) -> dict:  # fmt: skip
    import numpy as np

    from prismllm import _graph
    from prismllm.timing import warm_up
    from prismllm.trace import Trace, diff

    base, ranks = graph if before is None else before, took.ranks
    iterations = min(len(took.iterations(rank)) for rank in ranks)
    dropped = warm_up(iterations, warmup)
    kept = [one for one in ([r for r in s if r not in ranks] for s in _slices_of(before)) if one]
    timing = {"method": "slices", "warmup_iterations": dropped, "slices": kept + slices}
    timing |= {"among_peers": True} if among_peers else {}
    metadata = graph.metadata | {"timing": timing, "clock_domain": [f"rank {r}" for r in range(graph.world_size)]}
    paths = [os.fsencode(took.fragment(rank)) for rank in ranks]
    try:
        timed = Trace(_graph.with_spans_of(base.graph, paths, json.dumps(metadata)))
        equal, first = diff(graph, timed)
    except ValueError as reason:
        raise Differs(f"what the ranks did is not what the trace says: {reason}", 3) from None
    if not equal:
        raise Differs(f"the program does not do what the trace says: {words_of(first, graph)} now", 3)
    again = {}
    if "calibrated" in base.metadata:
        from prismllm.calibrate import realign

        with replaying(before.path):
            done = realign(base, timed, ranks, network)
        timed = done.trace
        again = {"iterations": [{"index": one.index, "time_s": one.time_s} for one in done.iterations],
                 "visited": done.visited, "nodes": done.nodes}  # fmt: skip
    timed.write(path)
    untimed = [rank for rank in graph.ranks if rank not in ranks and before is None]

    def quantile(rank, q):
        return float(np.quantile(took.steady(rank, dropped), q)) * 1e-9

    return {
        "slices": slices,
        "repetitions": iterations - dropped,
        "warmup_iterations": dropped,
        "untimed": untimed,
        "ranks": [
            {"rank": rank, "median_s": quantile(rank, 0.5), "p05_s": quantile(rank, 0.05),
             "p95_s": quantile(rank, 0.95)}
            for rank in ranks
        ],
        **again,
        "trace": path,
    }  # fmt: skip
