"""What is in a trace, as `prism info` prints it."""

from __future__ import annotations

import numpy as np

from prismllm import _graph
from prismllm.trace.trace import Trace

_MESSAGES = [_graph.OPS.index("send"), _graph.OPS.index("recv")]
_RECV = _graph.OPS.index("recv")


def info(trace: Trace) -> dict:
    """The summary with the keys of `prism info --json`; ValueError where values break the format.

    `nodes` counts those of all ranks. A collective counts once, whatever its number of members; a send and its receive
    count once each. Its bytes are those that its members put in (a receive: those it got out). `peak_memory_bytes` is
    the highest of any rank.
    """
    counts = np.zeros(len(_graph.OPS), np.int64)
    volume = np.zeros(len(_graph.OPS), np.int64)
    led = np.zeros(len(trace.groups), bool)  # a recorded member has counted the group's collectives
    nodes = peak = iterations = 0
    tables = {}
    for rank in trace.ranks:
        class_id = int(trace.rank_class[rank])
        if class_id not in tables:
            tables[class_id] = _class_table(trace.structure(class_id), len(trace.graph.group_slots(rank)))
        by_slot, messages, nbytes, class_nodes, class_iterations = tables[class_id]
        slots = trace.graph.group_slots(rank)
        first = ~led[slots]
        counts += by_slot[:, first].sum(axis=1) + messages
        led[slots] = True
        volume += nbytes
        nodes += class_nodes
        iterations = max(iterations, class_iterations)
        peak = max(peak, int(trace.graph.memory(rank)[2].max(initial=0)))
    present = np.flatnonzero(counts)
    return {
        "ranks": trace.world_size,
        "classes": trace.class_count,
        "groups": len(trace.groups),
        "nodes": nodes,
        "collectives": {_graph.OPS[i]: {"count": int(counts[i]), "bytes": int(volume[i])} for i in present},
        "iterations": iterations,
        "timed": trace.timed,
        "calibrated": bool(trace.metadata.get("calibrated", False)),
        "peak_memory_bytes": peak,
    }


def _class_table(columns: dict[str, np.ndarray], slots: int):
    """Of one rank: collectives [ops, group slots], messages [ops], bytes [ops], nodes, iterations."""
    op, size = columns["comm_op"], len(_graph.OPS)
    by_slot = np.bincount(op.astype(np.int64) * slots + columns["comm_group"], minlength=size * slots)
    by_slot = by_slot.reshape(size, slots)
    messages = np.zeros(size, np.int64)
    messages[_MESSAGES] = by_slot[_MESSAGES].sum(axis=1)
    by_slot[_MESSAGES] = 0
    nbytes = np.zeros(size, np.int64)
    np.add.at(nbytes, op, np.where(op == _RECV, columns["comm_output_bytes"], columns["comm_input_bytes"]))
    return by_slot, messages, nbytes, len(columns["node_kind"]), len(columns["mark_node"])
