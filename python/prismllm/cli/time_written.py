"""The trace that `prism time` writes, from what the ranks have left behind."""

from __future__ import annotations

import json
import os

from prismllm.cli.common import CommandError, replaying
from prismllm.cli.fragments import fragments_in


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


def write_timed(graph, before, network, runs: list[tuple[str, dict]], path: str, slices: list[list[int]],
           warmup: int | None) -> dict:  # fmt: skip
    import numpy as np

    from prismllm import _graph
    from prismllm.timing import repetitions, warm_up
    from prismllm.trace import Trace, diff, load

    base = graph if before is None else before
    took: dict[int, list[tuple[int, str, np.ndarray]]] = {}
    for folder, _ in runs:
        for fragment in fragments_in(folder):
            own = load(fragment)
            rank = own.ranks[0]
            columns = own.rank(rank)
            marks = graph.rank(rank).mark_node
            same = len(columns.node_kind) == len(graph.rank(rank).node_kind)
            each = repetitions(marks if same else marks[:0], columns.node_kind, columns.node_lane, columns.duration_ns)
            took.setdefault(rank, []).append((int(each.sum()), fragment, each))
    chosen = {rank: sorted(of)[(len(of) - 1) // 2] for rank, of in sorted(took.items())}
    iterations = min(len(each) for _, _, each in chosen.values())
    dropped = warm_up(iterations, warmup)
    kept = [one for one in ([r for r in s if r not in chosen] for s in _slices_of(before)) if one]
    split = sorted({cls for _, run in runs for cls in run["split"]})
    timing = {"method": "slices", "warmup_iterations": dropped, "slices": kept + slices}
    metadata = graph.metadata | {"timing": timing, "clock_domain": [f"rank {r}" for r in range(graph.world_size)]}
    paths = [os.fsencode(fragment) for _, fragment, _ in chosen.values()]
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
            done = realign(base, timed, list(chosen), network)
        timed = done.trace
        again = {"iterations": [{"index": one.index, "time_s": one.time_s} for one in done.iterations],
                 "visited": done.visited, "nodes": done.nodes}  # fmt: skip
    timed.write(path)
    untimed = [rank for rank in graph.ranks if rank not in chosen and before is None]

    def quantile(each, q):  # the last iteration has what follows the loop in it
        return float(np.quantile(each[dropped : -1 if len(each) > dropped + 1 else None], q)) * 1e-9

    return {
        "slices": slices,
        "repetitions": iterations - dropped,
        "warmup_iterations": dropped,
        "untimed": untimed,
        "split": split,
        "ranks": [
            {"rank": rank, "median_s": quantile(each, 0.5), "p05_s": quantile(each, 0.05),
             "p95_s": quantile(each, 0.95)}
            for rank, (_, _, each) in chosen.items()
        ],
        **again,
        "trace": path,
    }  # fmt: skip
