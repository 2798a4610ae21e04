"""What the simulated network says of a measurement: the replay of a trace in which all members do the same."""

from __future__ import annotations

from prismllm import _graph
from prismllm.cluster import loads
from prismllm.comm.measure import Measured
from prismllm.comm.plan import AFTER_S, LATE_S, PAIRS, Point
from prismllm.replay import NetworkOptions, replay
from prismllm.trace import Trace

_DTYPE = "float32"
_OP = {
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
}


class Predictor:
    """Of measurements, for one model after another."""

    def __init__(self, measured: list[Measured], ranks: int, backend: str):
        self.traces = [
            (trace_of(one.point, one.again_s, ranks, backend, issued), max(issued))
            for one, issued in ((one, _issued(one)) for one in measured)
        ]

    def __call__(self, cluster_toml: str) -> list[float]:
        """Seconds, as of Measured.time_s."""
        options = NetworkOptions(loads(cluster_toml))
        return [replay(trace, network=options).critical_path_s - late_s for trace, late_s in self.traces]


def _issued(measured: Measured) -> tuple[float, ...]:
    point = measured.point
    if measured.issued_s:
        return measured.issued_s
    late_s = LATE_S + AFTER_S if point.op == "crossing" else 0.0
    return tuple(late_s if i == 1 else 0.0 for group in point.groups for i in range(len(group)))


def trace_of(point: Point, again_s: float, ranks: int, backend: str, issued_s: tuple[float, ...] = ()) -> Trace:
    """Members issue the first round at `issued_s` (what is not their last AFTER_S before, in a crossing), by group, and
    another `again_s` after the end of the one before."""
    builder = _graph.Builder(ranks, timed=True, progress_model=backend, metadata_json="{}")
    for rank in range(ranks):
        number, members = next(((i, group) for i, group in enumerate(point.groups) if rank in group), (0, ()))
        groups = [(f"group {number}", list(members))] if members else []
        place = sum(map(len, point.groups[:number])) + (members.index(rank) if members else 0)
        begin = round(issued_s[place] * 1e9) if issued_s and members else 0
        builder.add(_record(rank, members, point, begin, round(again_s * 1e9)) | {"groups": groups})
    return Trace(builder.finish())


def _record(rank: int, members: tuple[int, ...], point: Point, begin_ns: int, again_ns: int) -> dict:
    nodes = {key: [] for key in ("kind", "lane", "comm", "name", "start_ns", "duration_ns")}
    comms = {key: [] for key in ("op", "dtype", "reduce_op", "group", "seq", "peer", "tag", "input_bytes",
                                 "output_bytes", "flags")}  # fmt: skip
    edges = {"src": [], "dst": []}

    def node(kind: str, comm: int, start: int, duration: int) -> int:
        for key, value in zip(nodes, (kind, 0, comm, "", start, duration), strict=True):
            nodes[key].append(value)
        return len(nodes["kind"]) - 1

    now, after_ns = 0, 0
    if point.op == "crossing" and members and rank == members[1]:
        after_ns = min(round(AFTER_S * 1e9), begin_ns)
    if begin_ns:
        now = begin_ns - after_ns
        node("compute", -1, 0, now)
    for number in range(point.rounds if members else 0):
        issue_ns, pending = (again_ns if number else 0), []
        for op, peer, into, out in _communications(rank, members, point):
            if after_ns and pending:
                node("compute", -1, now, after_ns)
                now += after_ns
            comm = len(comms["op"])
            reduce_op = "sum" if "reduce" in op else "none"
            root = peer if op in ("broadcast", "reduce", "gather", "scatter", "send", "recv") else -1
            values = (op, _DTYPE, reduce_op, 0, number, root, 0, into, out, 0)
            for column, value in zip(comms.values(), values, strict=True):
                column.append(value)
            issue = node("issue", comm, now, issue_ns)
            now, issue_ns = now + issue_ns, 0
            transfer = node("transfer", comm, now, 1)
            edges["src"].append(issue), edges["dst"].append(transfer)
            pending.append((comm, transfer))
        now += 1
        for comm, transfer in pending:
            wait = node("wait", comm, now, 0)
            edges["src"].append(transfer), edges["dst"].append(wait)
    return {"rank": rank, "lanes": ["main"], "nodes": nodes, "comms": comms, "edges": edges, "marks": [],
            "memory": {"node": [], "bytes": [], "peak": []}}  # fmt: skip


def _communications(rank: int, members: tuple[int, ...], point: Point) -> list[tuple[str, int, int, int]]:
    """(operation, peer or root, bytes put in, bytes got out) of one round at one member."""
    whole = max(point.bytes // 4, 1) * 4
    part = max(whole // 4 // len(members), 1) * 4
    everything, root = part * len(members), rank == members[0]
    if point.op in PAIRS:
        other = members[1] if root else members[0]
        receive = [("recv", other, 0, whole)] if point.op == "exchange" or not root else []
        return receive + ([("send", other, whole, 0)] if point.op == "exchange" or root else [])
    if point.op == "crossing":
        at = members.index(rank)
        send = [("send", members[at + 1], whole, 0)] if at < 2 else []
        return send + ([("recv", members[at - 1], 0, whole)] if 0 < at < 3 else [])
    op = _OP.get(point.op, point.op)
    into, out = {
        "all_gather": (part, everything), "reduce_scatter": (everything, part), "all_to_all": (everything, everything),
        "gather": (part, everything if root else 0), "scatter": (everything if root else 0, part),
    }.get(point.op, (whole, whole))  # fmt: skip
    return [(op, 0, into, out)]
