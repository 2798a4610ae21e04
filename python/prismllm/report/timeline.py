"""Spans to draw, few enough for a page: some ranks, some iterations, and nothing finer than a pixel."""

from __future__ import annotations

import base64

import numpy as np

from prismllm import _graph
from prismllm.analysis import Meetings, iteration_bounds, split_waits
from prismllm.analysis.operations import group_shape
from prismllm.replay import Replay
from prismllm.report.causes import path_line
from prismllm.trace import Rank, Trace
from prismllm.units import duration, size

KINDS = ["compute", "issue", "transfer", "exposed communication", "waiting for peers"]
_COMPUTE, _ISSUE, _TRANSFER, _EXPOSED, _WAITING = range(5)
_MOST_SPANS = 200_000  # in all iterations drawn; about 21 bytes each on the page
_MOST_LABELS = 20_000
_MOST_RANKS = 48
_MOST_ITERATIONS = 12
_MOST_BANDS = 240  # ranks times iterations
_COLUMNS = [16384 >> i for i in range(9)]  # pixels across an iteration, as many as the spans allow


def choose_ranks(trace: Trace, always: list[int]) -> list[int]:
    """Ranks to draw: all if they are few; else those of interest, one of each class, and others evenly."""
    if len(trace.ranks) <= _MOST_RANKS:
        return trace.ranks
    firsts = {int(trace.rank_class[r]): r for r in reversed(trace.ranks)}
    evenly = [trace.ranks[i] for i in np.linspace(0, len(trace.ranks) - 1, _MOST_RANKS).astype(int).tolist()]
    chosen = dict.fromkeys([*always, *sorted(firsts.values())[: _MOST_RANKS // 2], *evenly])
    return sorted(list(chosen)[:_MOST_RANKS])


def choose_iterations(times: np.ndarray, ranks: int) -> list[int]:
    """Iterations to draw for so many ranks: all if few; else evenly, with the slowest. times [iterations] ns."""
    most = min(_MOST_ITERATIONS, _MOST_BANDS // max(1, ranks))
    if len(times) <= most:
        return list(range(len(times)))
    evenly = np.linspace(0, len(times) - 1, most - 1).astype(int).tolist()
    return sorted({*evenly, int(np.argmax(times))})


class Labels:
    """Texts of spans, each once; beyond a limit spans have none."""

    def __init__(self):
        self.index: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        return (
            self.index.setdefault(text, len(self.index)) if len(self.index) < _MOST_LABELS else self.index.get(text, 0)
        )


class _Rows:
    """One rank's spans as rows to draw: one for each lane in use, and one for its transfers.

    row, kind, label [spans]; start, end [spans] ns; sorted by row, then start.
    """

    def __init__(self, rank: Rank, meetings: Meetings, world_size: int, labels: Labels):
        comm_labels = np.asarray(_comm_labels(rank, world_size, labels), np.int64)
        entries = meetings.of_rank(rank.rank, len(rank.comm_op))
        waits, waited, wait_comms = split_waits(rank, meetings.ready_ns[entries])
        starts, ends = rank.start_ns, rank.end_ns
        transfers = np.flatnonzero(rank.node_kind == _TRANSFER)
        ends[transfers] = meetings.end_ns[entries][rank.node_comm[transfers]]
        nodes = np.flatnonzero(rank.node_kind <= _TRANSFER)
        label = np.zeros(len(rank.node_kind), np.int64)
        with_comm = rank.node_comm >= 0
        label[with_comm] = comm_labels[rank.node_comm[with_comm]]
        for node in np.flatnonzero((rank.node_name < len(rank.trace.strings)) & ~with_comm).tolist():
            label[node] = labels(rank.name_of(node))
        wait_label = np.where(wait_comms >= 0, comm_labels[wait_comms] if len(comm_labels) else 0, 0)
        lanes = np.unique(rank.node_lane[rank.node_kind != _TRANSFER])
        row_of_lane = np.searchsorted(lanes, rank.node_lane)
        row_of_lane[rank.node_kind == _TRANSFER] = len(lanes)
        self.of_node = row_of_lane
        self.names = [rank.lanes[lane] for lane in lanes.tolist()] + ["transfers"]
        row = np.concatenate([row_of_lane[nodes], row_of_lane[waits], row_of_lane[waits]])
        kind = np.concatenate([rank.node_kind[nodes], np.full(len(waits), _WAITING), np.full(len(waits), _EXPOSED)])
        start = np.concatenate([starts[nodes], starts[waits], starts[waits] + waited])
        end = np.concatenate([ends[nodes], starts[waits] + waited, ends[waits]])
        label = np.concatenate([label[nodes], wait_label, wait_label])
        order = np.lexsort((end, start, row))
        order = order[(end > start)[order]]
        self.row, self.kind, self.label = row[order], kind[order], label[order]
        self.start, self.end = start[order], end[order]

    def window(self, begin: int, end: int) -> tuple[np.ndarray, ...]:
        """(row, kind, label, start, end) of what can be seen between two times, relative to the first."""
        seen = (self.end > begin) & (self.start < end)
        start = np.maximum(self.start[seen], begin) - begin
        return self.row[seen], self.kind[seen], self.label[seen], start, np.minimum(self.end[seen], end) - begin


def _comm_labels(rank: Rank, world_size: int, labels: Labels) -> list[int]:
    """[comms] a label for each communication: operation, bytes, and with whom."""
    keys = np.stack(
        [rank.comm_op, rank.comm_group, np.maximum(rank.comm_input_bytes, rank.comm_output_bytes), rank.comm_peer]
    ).astype(np.int64)
    distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
    texts = []
    for op, group, nbytes, peer in distinct.T.tolist():
        name = _graph.OPS[op]
        if name in ("send", "recv"):
            other = f"rank {rank.peers[peer]}" if peer >= 0 else "any rank"
            whom = f"to {other}" if name == "send" else f"from {other}"
        else:
            whom = f"over {group_shape(rank.groups[group].members, world_size)}"
        texts.append(labels(f"{name}, {size(nbytes)} {whom}" if nbytes else f"{name} {whom}"))
    return [texts[i] for i in inverse.ravel().tolist()]


def merge(spans: tuple[np.ndarray, ...], pixel: float) -> tuple[np.ndarray, ...]:
    """Neighbours of one row that are shorter than a pixel and begin in the same one become one span of the kind that
    takes most of their time. Returns (row, kind, label, start, end, merged); `merged` is how many there were."""
    row, kind, label, start, end = spans
    count = len(row)
    if not count:
        return (*spans, np.zeros(0, np.int64))
    short = (end - start) < pixel
    cell = (start // pixel).astype(np.int64)
    new = np.ones(count, bool)
    new[1:] = ~(short[1:] & short[:-1] & (row[1:] == row[:-1]) & (cell[1:] == cell[:-1]))
    group = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    merged = np.diff(np.append(first, count))
    share = np.zeros((len(first), len(KINDS)), np.int64)
    np.add.at(share, (group, kind), end - start)
    last_end = np.maximum.reduceat(end, first)
    return row[first], share.argmax(1), np.where(merged == 1, label[first], 0), start[first], last_end, merged


def timeline(
    trace: Trace, meetings: Meetings, ranks: list[int], iterations: list[int], causes: Replay | None = None
) -> dict:
    """What the page draws, with the critical paths of `causes`: {"ranks", "rows", "kinds", "labels", "merged", "pixel",
    "iterations"}."""
    labels = Labels()
    rows = [_Rows(trace.rank(r), meetings, trace.world_size, labels) for r in ranks]
    bounds = [iteration_bounds(trace.rank(r)) for r in ranks]
    windows = []
    for i in iterations:
        inside = [b for b in bounds if len(b) > i + 1]
        windows.append((i, min(int(b[i]) for b in inside), max(int(b[i + 1]) for b in inside)))
    if not windows:
        begin = min((int(r.start.min()) for r in rows if len(r.start)), default=0)
        windows = [(None, begin, max((int(r.end.max()) for r in rows if len(r.end)), default=begin + 1))]
    for columns in _COLUMNS:
        drawn = [[merge(r.window(begin, end), (end - begin) / columns) for r in rows] for _, begin, end in windows]
        if sum(len(spans[0]) for parts in drawn for spans in parts) <= _MOST_SPANS:
            break
    merged = sum(int(spans[5][spans[5] > 1].sum()) for parts in drawn for spans in parts)
    row_of_node = dict(zip(ranks, (r.of_node for r in rows), strict=True))
    return {
        "ranks": ranks,
        "rows": [r.names for r in rows],
        "kinds": KINDS,
        "labels": list(labels.index),
        "merged": merged,
        "pixel": duration(max((end - begin) / columns for _, begin, end in windows) / 1e9),
        "iterations": [
            {
                "index": i,
                "length_ms": (end - begin) / 1e6,
                **_packed(parts),
                "path": path_line(causes, trace, i or 0, begin, row_of_node),
            }
            for (i, begin, end), parts in zip(windows, drawn, strict=True)
        ],
    }


def _packed(parts: list[tuple[np.ndarray, ...]]) -> dict[str, str]:
    """Columns as base64 of little-endian arrays; start and end in ms."""
    rank = np.concatenate([np.full(len(spans[0]), i) for i, spans in enumerate(parts)] or [np.zeros(0)])
    row, kind, label, start, end, merged = (np.concatenate(column) for column in zip(*parts, strict=True))

    def pack(values, dtype):
        return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()

    return {
        "rank": pack(rank, "<u2"),
        "row": pack(row, "u1"),
        "kind": pack(kind, "u1"),
        "label": pack(label, "<u2"),
        "start": pack(start / 1e6, "<f4"),
        "end": pack(end / 1e6, "<f4"),
        "merged": pack(np.minimum(merged, 65535), "<u2"),
    }
