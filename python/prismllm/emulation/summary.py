"""What an emulation leaves: the trace of its real ranks, in emulated time, and its figures."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np

from prismllm.units import duration

if TYPE_CHECKING:
    from prismllm.launch import LaunchResult, RunFolder
    from prismllm.trace import Trace

_MOST_LAG_S = 0.005  # of one release in a hundred: beyond it the run is flagged


def write_trace(folder: RunFolder, base: Trace, ranks: tuple[int, ...], path: str, result: LaunchResult) -> Trace:
    """The real ranks' recordings as one trace, written to `path`; the others are not in it."""
    from prismllm import _graph
    from prismllm.trace import load

    fragments = [os.fsencode(os.path.join(folder.fragments, f"rank-{rank}.prism")) for rank in ranks]
    own = json.loads(_graph.open(fragments[0]).metadata_json)
    own.pop("rank", None)
    metadata = own | {
        "clock_domain": "emulated",
        "emulated": {"trace": os.path.basename(base.path or ""), "ranks": list(ranks)},
        "notes": result.notes,
    }
    graph = _graph.merge(fragments, base.world_size, base.graph.progress_model, True, json.dumps(metadata))
    _graph.write(graph, os.fsencode(path))
    return load(path)


def summary_of(trace: Trace, result: LaunchResult) -> dict:
    """The keys of `prism emulate --json` but for the trace."""
    from prismllm import _replay

    report = _replay.as_recorded(trace.graph)
    emulation = result.statistics["emulation"]
    sandbox = []
    for rank in report.ranks:
        times = iteration_times_s(trace, rank.rank)
        sandbox.append({
            "rank": rank.rank,
            "iter_s": float(np.median(times)) if len(times) else 0.0,
            "iterations_s": times.tolist(),
            "busy_s": busy_s(trace, rank.rank),
            "exposed_comm_s": rank.exposed_comm_ns / 1e9,
            "waiting_s": rank.waiting_ns / 1e9,
            "peak_memory_bytes": rank.peak_memory_bytes,
        })  # fmt: skip
    return {
        "ranks": trace.world_size,
        "iterations": [{"index": one.index, "time_s": one.time_ns / 1e9, "rank": one.rank}
                       for one in report.iterations],
        "sandbox": sandbox,
        "lag_s": emulation["lag_s"],
        "releases": emulation["releases"],
        "groups": emulation["groups"],
        "invented_values": emulation["invented_values"],
        "known_values": emulation["known_values"],
        **({"checked_values": emulation["checked_values"]} if "checked_values" in emulation else {}),
        "differences": emulation["differences"],
        "late_issue_s": emulation["late_issue_s"],
        "emulated_s": emulation["emulated_s"],
        "wall_s": emulation["wall_s"],
        "notes": result.notes + _notes(emulation),
    }  # fmt: skip


def _notes(emulation: dict) -> list[str]:
    """Where figures are not those of a machine that keeps up."""
    notes, lag, late = [], emulation["lag_s"]["p99"], emulation["late_issue_s"]
    if lag > _MOST_LAG_S:
        notes.append(f"this machine could not keep up: one release in a hundred was more than {duration(lag)} late. "
                     "The emulated times stand; what the program measures by its own clock does not")  # fmt: skip
    if late > 0:
        notes.append(f"an operation was issued up to {duration(late)} before the time to which virtual ranks had gone: "
                     "it counts as issued then")  # fmt: skip
    return notes


def busy_s(trace: Trace, rank: int) -> float:
    """Computing and issuing in an iteration, the median."""
    from prismllm.timing import repetitions

    one = trace.rank(rank)
    each = repetitions(one.mark_node, one.node_kind, one.node_lane, one.duration_ns)
    return float(np.median(each[:-1] if len(each) > 1 else each)) / 1e9 if len(each) else 0.0


def iteration_times_s(trace: Trace, rank: int) -> np.ndarray:
    """From mark to mark, of one rank."""
    one = trace.rank(rank)
    return np.diff(one.start_ns[one.mark_node]) / 1e9
