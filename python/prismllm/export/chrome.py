"""Chrome trace events ("catapult" JSON), as ui.perfetto.dev and chrome://tracing read them.

Each rank is a process; each lane is a thread of it, and the transfers of each group are threads of their own, as many
as overlap. Each node is one complete event ("X"); arrows ("s", "t", "f") run through the members of each collective in
the order in which they came, and from each send to its receive. Memory is a counter, iterations are instants.

Times are microseconds with the nanoseconds as decimals, since the first start of any rank.
"""

from __future__ import annotations

import functools
import heapq
import json
import os
from collections.abc import Iterator

import numpy as np

from prismllm import _graph
from prismllm.analysis import Meetings, with_times
from prismllm.export.atomic import replacing
from prismllm.trace import Rank, Trace

_TRANSFER = _graph.NODE_KINDS.index("transfer")
_CHUNK = 1 << 15  # nodes whose text is held at a time


def export_chrome(trace: Trace, path: str | os.PathLike) -> int:
    """Writes the trace to `path` (compressed where it ends in .gz), complete or not at all, and returns the number of
    events. A trace without times is replayed first. Memory stays in proportion to the trace's columns."""
    trace, meaning = with_times(trace)
    path = os.fspath(path)
    with replacing(path) as write:
        header = {"displayTimeUnit": "ns", "otherData": {"tool": "prismllm", "times": meaning, **trace.metadata}}
        write(json.dumps(header)[:-1] + ', "traceEvents": [\n')
        count = 0
        for events in filter(None, _events(trace)):
            write((",\n" if count else "") + ",\n".join(events))
            count += len(events)
        write("\n]}\n")
    return count


def _events(trace: Trace) -> Iterator[list[str]]:
    """Pieces of JSON, one an event, in pieces of bounded size."""
    origin = min((int(trace.rank(r).start_ns.min()) for r in trace.ranks if len(trace.rank(r).start_ns)), default=0)
    meetings = Meetings(trace)
    tid_of_entry = np.zeros(len(meetings.op), np.int64)
    for number in trace.ranks:
        rank = trace.rank(number)
        durations = _durations(rank, meetings)
        threads, names = _threads(rank, durations)
        tid_of_thread = np.array([_tid(number, thread, trace.world_size) for thread in range(len(names))], np.int64)
        tids = tid_of_thread[threads]
        transfers = np.flatnonzero(rank.is_kind("transfer"))
        tid_of_entry[meetings.entry_base[number] + rank.node_comm[transfers]] = tids[transfers]
        yield _metadata_events(number, trace.world_size, names, tid_of_thread.tolist())
        yield from _slices(rank, tids, durations, origin)
        yield _marks(rank, origin)
        yield from _memory(rank, origin)
    yield from _flows(meetings, tid_of_entry, origin)


def _tid(rank: int, thread: int, world_size: int) -> int:
    """The number of a rank's thread in the file. As on Linux, the main thread has the process's number (Perfetto takes
    0 for that) and no other thread has it."""
    return rank if thread == 0 else world_size + thread


def _us(ns: int) -> str:
    # Perfetto multiplies the double by 1000 and cuts the rest off. Where that would lose a nanosecond, and slices that
    # touch would overlap (and be dropped), a tenth of one is added.
    return f"{ns // 1000}.{ns % 1000:03d}{'' if int(ns / 1000 * 1000.0) == ns else '1'}"


def _durations(rank: Rank, meetings: Meetings) -> np.ndarray:
    """[nodes] ns; a transfer ends when it was done, not when the program looked (see Meetings)."""
    durations = rank.duration_ns.copy()
    transfers = np.flatnonzero(rank.node_kind == _TRANSFER)
    ends = meetings.end_ns[meetings.entry_base[rank.rank] + rank.node_comm[transfers]]
    durations[transfers] = ends - rank.start_ns[transfers]
    return durations


def _threads(rank: Rank, durations: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """[nodes] thread of each node, and the threads' names: the lanes, then rows of transfers for each group."""
    names = list(rank.lanes)
    threads = rank.node_lane.astype(np.int64)
    transfers = np.flatnonzero(rank.node_kind == _TRANSFER)
    slots = rank.comm_group[rank.node_comm[transfers]]
    for slot in np.unique(slots).tolist():
        mine = transfers[slots == slot]
        mine = mine[np.argsort(rank.start_ns[mine], kind="stable")]
        rows = []  # heap of (end, row): rows of transfers that do not overlap
        for node, start, end in zip(
            mine.tolist(), rank.start_ns[mine].tolist(), (rank.start_ns + durations)[mine].tolist(), strict=True
        ):
            if rows and rows[0][0] <= start:
                row = heapq.heappop(rows)[1]
            else:
                row = len(names)
                number = f" ({len(rows) + 1})" if rows else ""
                names.append(f"transfers of group {rank.groups[slot].name}{number}")
            heapq.heappush(rows, (end, row))
            threads[node] = row
    return threads, names


def _metadata_events(rank: int, world_size: int, names: list[str], tids: list[int]) -> list[str]:
    def metadata(kind, **more):
        return json.dumps({"ph": "M", "pid": rank, "name": kind, **more})

    events = [
        metadata("process_name", args={"name": f"rank {rank:0{len(str(world_size - 1))}d}"}),
        metadata("process_sort_index", args={"sort_index": rank}),
    ]
    for thread, (name, tid) in enumerate(zip(names, tids, strict=True)):
        events.append(metadata("thread_name", tid=tid, args={"name": name}))
        events.append(metadata("thread_sort_index", tid=tid, args={"sort_index": thread}))
    return events


def _slices(rank: Rank, tids: np.ndarray, durations: np.ndarray, origin: int) -> Iterator[list[str]]:
    kinds, columns = _graph.NODE_KINDS, rank.columns

    @functools.lru_cache(_CHUNK)  # the nodes of a communication stand close together
    def describe(comm: int) -> tuple[str, str]:
        """Name and arguments."""
        value = {name: int(columns[f"comm_{name}"][comm]) for name in ("op", "dtype", "group", "seq", "peer", "tag")}
        op, group, peer = _graph.OPS[value["op"]], rank.groups[value["group"]], value["peer"]
        nbytes = int(max(columns["comm_input_bytes"][comm], columns["comm_output_bytes"][comm]))
        args = {"group": group.name, "seq": value["seq"], "bytes": nbytes, "dtype": _graph.DTYPES[value["dtype"]]}
        if op in ("send", "recv"):
            args |= {"peer": int(rank.peers[peer]) if peer >= 0 else "any", "tag": value["tag"]}
        elif peer >= 0:
            args["root"] = int(group.members[peer])
        return op, ", " + json.dumps(args)[1:-1]

    for first in range(0, len(rank.node_kind), _CHUNK):
        part = slice(first, first + _CHUNK)
        events = []
        for node, kind, comm, tid, start, duration in zip(
            range(first, len(rank.node_kind)),
            columns["node_kind"][part].tolist(),
            columns["node_comm"][part].tolist(),
            tids[part].tolist(),
            (rank.start_ns[part] - origin).tolist(),
            durations[part].tolist(),
            strict=False,
        ):
            if comm < 0:
                name, more = json.dumps(rank.name_of(node) or kinds[kind]), ""
            else:
                op, more = describe(comm)
                name = f'"{op}"' if kind == _TRANSFER else f'"{kinds[kind]} {op}"'
            events.append(
                f'{{"ph":"X","pid":{rank.rank},"tid":{tid},"ts":{_us(start)},"dur":{_us(duration)},'
                f'"cat":"{kinds[kind]}","name":{name},"args":{{"node":{node}{more}}}}}'
            )
        yield events


def _marks(rank: Rank, origin: int) -> list[str]:
    starts = (rank.start_ns[rank.mark_node] - origin).tolist()
    where = f'"pid":{rank.rank},"tid":{rank.rank}'
    return [
        f'{{"ph":"i","s":"p",{where},"ts":{_us(start)},"cat":"iteration","name":"iteration {i}"}}'
        for i, start in enumerate(starts)
    ]


def _memory(rank: Rank, origin: int) -> Iterator[list[str]]:
    memory = rank.memory
    for first in range(0, len(memory.node), _CHUNK):
        part = slice(first, first + _CHUNK)
        nodes = memory.node[part]
        times = (rank.start_ns[nodes] + rank.duration_ns[nodes] - origin).tolist()
        yield [
            f'{{"ph":"C","pid":{rank.rank},"ts":{_us(at)},"name":"{name}","args":{{"bytes":{value}}}}}'
            for at, held, peak in zip(times, memory.bytes[part].tolist(), memory.peak[part].tolist(), strict=True)
            for name, value in (("memory in use", held), ("memory peak since the step before", peak))
        ]


def _flows(meetings: Meetings, tids: np.ndarray, origin: int) -> Iterator[list[str]]:
    """Through the members of each meeting in the order in which they came; alone, a member has no arrow."""
    order = np.lexsort((meetings.rank, meetings.start_ns, meetings.meeting))
    meeting = meetings.meeting[order]
    first = np.append(True, meeting[1:] != meeting[:-1]) if len(order) else np.zeros(0, bool)
    last = np.append(first[1:], True) if len(order) else first
    paired = ~(first & last)
    phase = np.where(first, "s", np.where(last, "f", "t"))
    # A send points to its receive also where that was posted first.
    is_send, is_recv = (meetings.op[order] == _graph.OPS.index(op) for op in ("send", "recv"))
    phase[is_send & paired], phase[is_recv & paired] = "s", "f"
    # The arrow binds to the slice that is open at its time.
    at = meetings.start_ns[order].copy()
    at[is_recv] = meetings.ready_ns[order][is_recv]
    # Of one time, what stands first in the file comes first: a send that meets a waiting receive, too.
    keep = np.flatnonzero(paired)
    keep = keep[np.lexsort((phase[keep] == "f", meeting[keep]))]
    messages = {_graph.OPS.index(op) for op in ("send", "recv")}  # both ends of an arrow must have one name
    for begin in range(0, len(keep), _CHUNK):
        rows = keep[begin : begin + _CHUNK]
        entries = order[rows]
        yield [
            f'{{"ph":"{kind}","id":{number},"pid":{rank},"tid":{tid},"ts":{_us(ts)},"cat":"communication",'
            f'"name":"{"message" if op in messages else _graph.OPS[op]}"{end}}}'
            for kind, number, rank, tid, ts, op, end in zip(
                phase[rows].tolist(),
                meeting[rows].tolist(),
                meetings.rank[entries].tolist(),
                tids[entries].tolist(),
                (at[rows] - origin).tolist(),
                meetings.op[entries].tolist(),
                [',"bp":"e"' if p == "f" else "" for p in phase[rows].tolist()],
                strict=True,
            )
        ]
