"""How well a model fits, for people: by operation and size of groups, and as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import numpy as np

from prismllm.comm.fitting import Fit, Residual
from prismllm.units import duration, size


def by_operation(fit: Fit) -> list[dict]:
    """For each operation and number of members, groups side by side: t = alpha + beta x bytes as measured (of all that
    a group did at once), and `residual`, the median of |predicted / measured - 1| at the sizes held out."""
    found: dict[tuple[str, int], list[Residual]] = {}
    for one in fit.residuals:
        found.setdefault((one.measured.point.op, one.measured.point.members), []).append(one)
    return [{"op": op, "ranks": members, **_line(of), "residual": residual(of)} for (op, members), of in found.items()]


def residual(of: Iterable[Residual]) -> float:
    """Of those held out; of all where none is."""
    of = list(of)
    held_out = [one for one in of if one.measured.point.held_out]
    return statistics.median(abs(one.error) for one in held_out or of)


BAD = 0.25


def misfits(fit: Fit) -> list[dict]:
    """Where the model is not to be trusted: an operation, a number of members and a size held out (any, where none is)
    at which it is off by more than BAD, and by more than three times what the measurement differs from itself. The
    worst first; of `residual`, `time_s` and `predicted_s` the medians over groups and rounds."""
    found: dict[tuple[str, int, int], list[Residual]] = {}
    for one in fit.held_out or fit.residuals:
        point = one.measured.point
        found.setdefault((point.op, point.members, point.bytes), []).append(one)
    rows = [
        {"op": op, "ranks": members, "bytes": nbytes, "residual": residual(of),
         "time_s": statistics.median(one.measured.time_s for one in of),
         "predicted_s": statistics.median(one.predicted_s for one in of)}
        for (op, members, nbytes), of in found.items()
        if residual(of) > max(BAD, 3 * statistics.median(one.measured.spread for one in of))
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["residual"])


def in_words(misfit: dict) -> str:
    return (f"{misfit['op']} of {size(misfit['bytes'])} among {misfit['ranks']} ranks, off by {misfit['residual']:.0%} "
            f"({duration(misfit['time_s'])}, predicted {duration(misfit['predicted_s'])})")  # fmt: skip


def _line(of: list[Residual]) -> dict:
    """Least squares of relative errors, per round."""
    nbytes = np.array([one.measured.point.bytes for one in of], float)
    time = np.array([one.measured.time_s / one.measured.point.rounds for one in of])
    columns = np.stack([1 / time, nbytes / time], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(columns, np.ones(len(of)), rcond=None)
    return {"alpha_s": float(alpha), "beta_s_per_byte": float(beta)}


def write_plot(fit: Fit, path: str) -> None:
    """One HTML file: errors over sizes, a line for each operation and grouping; those held out with a ring."""
    import plotly.graph_objects as go

    from prismllm.export.atomic import replacing

    figure = go.Figure()
    lines: dict[str, list[Residual]] = {}
    for one in fit.residuals:
        point = one.measured.point
        stride = point.groups[0][1] - point.groups[0][0]
        again = f", {point.rounds} times" if point.rounds > 1 else ""
        lines.setdefault(f"{point.op}, {len(point.groups)} x {point.members} ranks, stride {stride}{again}", []).append(
            one
        )
    for name, of in lines.items():
        figure.add_scatter(
            name=name, x=[one.measured.point.bytes for one in of], y=[100 * one.error for one in of],
            mode="lines+markers",
            marker={"symbol": ["circle-open" if one.measured.point.held_out else "circle" for one in of], "size": 8},
            error_y={"array": [100 * one.measured.spread for one in of], "thickness": 0.5},
            text=[f"measured {one.measured.time_s * 1e3:.3f} ms, predicted {one.predicted_s * 1e3:.3f} ms"
                  for one in of],
        )  # fmt: skip
    figure.update_layout(
        title="Predicted beside measured; rings: sizes that the fit has not seen",
        xaxis={"type": "log", "title": "bytes"}, yaxis={"title": "error, %"}, hovermode="closest",
    )  # fmt: skip
    with replacing(path) as write:
        write(figure.to_html(include_plotlyjs=True))
