"""Puts the page together: page.html with style and script inside, the data as JSON, plotly.js embedded."""

from __future__ import annotations

import html
import json
import os
from importlib import resources
from string import Template

import numpy as np

from prismllm.export.atomic import replacing
from prismllm.report.causes import late_rows
from prismllm.report.memory import memory
from prismllm.report.summary import Summary
from prismllm.report.timeline import choose_iterations, choose_ranks, timeline
from prismllm.trace import Trace, load
from prismllm.units import duration, share, size


def write_report(
    trace: Trace | str | os.PathLike, path: str | os.PathLike, compare: Trace | str | os.PathLike | None = None
):
    """Writes a self-contained HTML file about a trace (or `.prism` file) and, with `compare`, how a second one differs.

    Traces without times are replayed first, and the page says so. The file is complete or absent.
    """
    own = Summary(trace if isinstance(trace, Trace) else load(trace))
    other = None
    if compare is not None:
        other = Summary(compare if isinstance(compare, Trace) else load(compare))
    data = page_data(own, other)
    text = Template(_asset("page.html")).substitute(
        title=html.escape(os.path.basename(own.recorded.path or "trace")),
        style=_asset("page.css"),
        meaning=html.escape(own.meaning),
        header="\n".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in own.header()),
        tiles="\n".join(
            f'<div class="tile"><h3>{html.escape(t.title)}</h3><p class="value">{html.escape(t.value)}</p>'
            f"<p>{html.escape(t.detail)}</p></div>"
            for t in own.tiles()
        ),
        operations=_operation_rows(own),
        late=late_rows(own.causes),
        comparison=_comparison(own, other) if other else "",
        # "<" never opens a tag inside the script.
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        plotly=_plotly(),
        script=_asset("page.js"),
    )
    with replacing(os.fspath(path)) as write:
        write(text)


def page_data(own: Summary, other: Summary | None = None) -> dict:
    """What the script draws. Times in ms, sizes in bytes."""
    trace = own.trace
    ranks = choose_ranks(trace, [own.straggler()[0], own.most_memory()[0]])
    iterations = choose_iterations(own.times_ns, len(ranks))
    origin = min((int(trace.rank(r).start_ns.min()) for r in trace.ranks if len(trace.rank(r).start_ns)), default=0)
    shown = [*iterations, -1]  # the last row of usage is the whole trace
    data = {
        "ranks": trace.ranks,
        "iterations": _iteration_curve(own),
        "usage": {name: _ms(getattr(own.usage, name)[shown]) for name in ("busy", "exposed", "waiting")},
        "timeline": timeline(trace, own.meetings, ranks, iterations, own.causes),
        "memory": memory(trace, own.peaks, ranks, origin),
    }
    if other:
        data["other"] = {"iterations": _iteration_curve(other), **_difference(own, other)}
    return data


def _ms(ns: np.ndarray) -> list:
    return np.round(ns / 1e6, 6).tolist()


def _iteration_curve(summary: Summary) -> dict:
    times = summary.rank_times_ns
    fastest = np.where(times >= 0, times, np.iinfo(np.int64).max).min(1) if times.size else summary.times_ns
    return {"slowest": _ms(summary.times_ns), "fastest": _ms(fastest)}


def _difference(own: Summary, other: Summary) -> dict:
    """Of the mean iteration (the whole trace, where none is marked) on ranks that both have: other minus own."""
    common = [r for r in own.trace.ranks if r in set(other.trace.ranks)]

    def mean(summary, name):
        table = getattr(summary.usage, name)
        columns = [summary.trace.ranks.index(r) for r in common]
        return (table[:-1] if len(table) > 1 else table)[:, columns].mean(0)

    names = ("busy", "exposed", "waiting")
    return {"ranks": common, **{name: _ms(mean(other, name) - mean(own, name)) for name in names}}


def _operation_rows(summary: Summary) -> str:
    most = max((row.rank_seconds for row in summary.operations), default=0)
    rows = []
    for row in summary.operations:
        waited = row.rank_seconds - row.transfer_seconds
        cells = [
            row.op,
            row.group,
            f"{row.count:,}",
            size(row.bytes),
            duration(row.rank_seconds),
            duration(row.transfer_seconds),
            share(waited, row.rank_seconds),
        ]
        bar = f'<i style="width:{100 * row.rank_seconds / most if most else 0:.1f}%"></i>'
        text = "".join(f"<td>{html.escape(cell)}{bar if i == 4 else ''}</td>" for i, cell in enumerate(cells))
        rows.append(f"<tr>{text}</tr>")
    return "\n".join(rows) or '<tr><td colspan="7">no communication</td></tr>'


def _comparison(own: Summary, other: Summary) -> str:
    def shares(summary):
        totals = summary.totals()
        return [100 * part / sum(totals) if sum(totals) else 0.0 for part in totals]

    def row(name, a, b, text, change):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in (name, text(a), text(b), change(a, b)))
        return f"<tr>{cells}</tr>"

    def relative(a, b):
        return f"{100 * (b - a) / a:+.1f}%" if a else "-"

    rows = [
        row("Ranks", own.trace.world_size, other.trace.world_size, str, lambda a, b: f"{b - a:+d}" if a != b else "")
    ]
    rows.append(row("Iteration time, median", own.median_s, other.median_s, duration, relative))
    for name, a, b in zip(
        ("Busy", "Exposed communication", "Waiting for peers"), shares(own), shares(other), strict=True
    ):
        rows.append(row(name, a, b, "{:.1f}%".format, lambda a, b: f"{b - a:+.1f} points"))
    rows.append(row("Peak memory", own.most_memory()[1], other.most_memory()[1], size, relative))
    first, second = (html.escape(os.path.basename(s.recorded.path or "trace")) for s in (own, other))
    return (
        '<section id="comparison"><h2>Comparison</h2>'
        f"<p>{first} against {second}. Of the second: {html.escape(other.meaning)} "
        "Below, by rank, the mean iteration.</p>"
        f"<table><thead><tr><th></th><th>{first}</th><th>{second}</th><th>change</th></tr></thead>"
        f'<tbody>{"".join(rows)}</tbody></table><div id="difference" class="plot"></div></section>'
    )


def _asset(name: str) -> str:
    return resources.files("prismllm.report").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().replace("</script", "<\\/script")
