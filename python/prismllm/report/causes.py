"""What held the job up: the critical path as a line through the timeline, and a table of late-comers."""

from __future__ import annotations

import base64
import html

import numpy as np

from prismllm.replay import Replay
from prismllm.replay.critical_path import NOT_STARTED
from prismllm.trace import Trace
from prismllm.units import duration, size

_MOST_HOPS = 4000  # in an iteration; the longest
_MOST_LATE = 10


def path_line(replay: Replay | None, trace: Trace, iteration: int, begin_ns: int, rows: dict[int, np.ndarray]) -> dict:
    """The hops of an iteration on the ranks that are drawn: place [hops] of a rank in `rows`, row, start, end [ms since
    begin_ns]. rows: by rank, [nodes] the row in which each is drawn."""
    columns = {name: np.zeros(0) for name in ("rank", "row", "start", "end")}
    if replay:
        path = replay.path.columns
        own = np.flatnonzero((path["iteration"] == iteration) & (path["node"] != NOT_STARTED))
        own = own[np.isin(path["rank"][own], list(rows))]
        own = np.sort(own[np.argsort(-path["duration_ns"][own], kind="stable")[:_MOST_HOPS]])
        rank, node, start_ns = path["rank"][own], path["node"][own], path["start_ns"][own].copy()
        row = np.zeros(len(own), np.int64)
        for number in np.unique(rank).tolist():  # drawn where the trace has the node, by whatever clock
            of = rank == number
            nodes = node[of]
            row[of] = rows[number][nodes]
            start_ns[of] += trace.rank(number).start_ns[nodes] - replay.timeline(number)[0][nodes]
        start = (start_ns - begin_ns) / 1e6
        columns = {"rank": np.searchsorted(sorted(rows), rank), "row": row, "start": start,
                   "end": start + path["duration_ns"][own] / 1e6}  # fmt: skip
    kinds = {"rank": "<u2", "row": "u1", "start": "<f4", "end": "<f4"}
    return {name: base64.b64encode(values.astype(kinds[name]).tobytes()).decode() for name, values in columns.items()}


def late_rows(replay: Replay | None) -> str:
    rows = []
    for one in replay.late(_MOST_LATE)[0] if replay else ():
        cells = (one.what, f"{one.members}", size(one.bytes), f"rank {one.late_rank}", duration(one.late_by_s),
                 duration(one.waited_s))  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    none = "nobody waited" if replay else "not known: the times of the trace contradict its dependencies"
    return "\n".join(rows) or f'<tr><td colspan="6">{none}</td></tr>'
