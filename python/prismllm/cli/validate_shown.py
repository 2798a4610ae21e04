"""What `prism validate` says: a table for people, and the JSON of the contract."""

from __future__ import annotations

from prismllm.cli.common import Output
from prismllm.units import duration, size

_SHOWN_WAITING = 4


def shown(output: Output, plan, real, predictions, rows, notes: list[str], path: str) -> dict:
    """Prints the table; returns the JSON."""
    calibrated = predictions["calibrated"]
    last = "emulated" if "emulated" in predictions else "calibrated"
    notes = [*notes, *(f"{name}: {note}" for name, one in predictions.items() for note in one.figures.get("notes", []))]
    if predictions[last].figures.get("invented_values"):
        notes = [*notes, "emulated: values of virtual ranks were made up, losses mean nothing"]
    if last == "calibrated":
        notes = [*notes, "without emulation: only calibrated figures are compared"]
    if not any(row.figure == "losses" for row in rows):
        notes = [*notes, 'no losses: ranks print none (a line RESULT {"losses": [...]}, or --loss-pattern)']
    if len(real) == 1:
        notes = [*notes, "one real run has no spread"]
    whole = next(row for row in rows if row.figure == "iteration")
    good = all(row.ok for row in rows)
    if not output.quiet:
        _print(output, plan, len(real), list(predictions), _chosen(rows), [*(("note", note) for note in notes),
               ("all rows", path), ("verdict", _verdict(rows))])  # fmt: skip
    return {
        "program": plan.program.words,
        "ranks": plan.ranks,
        "sandbox": list(plan.sandbox),
        "place": {"hosts": plan.bed[0], "rate": plan.bed[1]} if plan.bed else "loopback",
        "real": {"iteration_time_s": whole.real, "spread": whole.spread,
                 "runs": [run.slowest_s(run.ranks) for run in real]},
        "calibrated": {"iteration_time_s": calibrated.iteration_s, "error": _errors(rows, "calibrated"),
                       "uncalibrated_iteration_time_s": calibrated.figures["uncalibrated_iteration_time_s"]},
        "emulated": _emulated(predictions, rows),
        "compared": last,
        "error": _errors(rows, last),
        "ok": good,
        "table": [row.to_json() for row in rows],
        "notes": notes,
    }  # fmt: skip


def _emulated(predictions, rows) -> dict | None:
    if "emulated" not in predictions:
        return None
    row = next(row for row in rows if row.figure == "iteration" and "emulated" in row.predicted)
    return predictions["emulated"].figures | {"iteration_time_s": row.predicted["emulated"].value}


def _errors(rows, name: str) -> dict:
    """The largest of each kind; None where nothing could be compared."""

    def worst(figure: str):
        errors = [row.predicted[name].error for row in rows if row.figure == figure and name in row.predicted]
        return None if not errors or None in errors else max(errors, key=abs)

    first = next(row for row in rows if row.figure == "iteration" and name in row.predicted)
    return {"iteration": first.predicted[name].error, "span_start": worst("span starts"),
            "memory_bytes": worst("peak memory"), "loss": worst("losses")}  # fmt: skip


def _verdict(rows) -> str:
    off = [row for row in rows if not row.ok]
    if not off:
        return "ok: every error is within 1% or the spread of the real runs"
    return f"out of bounds: {len(off)} of {len(rows)} rows"


def _chosen(rows) -> list:
    """Rows of the whole job; of those of single ranks the worst, of operations those most waited in."""
    chosen = [row for row in rows if not row.of.startswith("rank ") and row.figure != "waiting"]
    waiting = sorted((row for row in rows if row.figure == "waiting"), key=lambda row: -row.real)
    chosen += waiting[:_SHOWN_WAITING]
    for figure in ("iteration", "peak memory", "losses"):
        of_ranks = [row for row in rows if row.figure == figure and row.of.startswith("rank ")]
        chosen += sorted(of_ranks, key=_badness)[-1:]
    return chosen


def _badness(row) -> float:
    errors = [figure.error for figure in row.predicted.values()]
    return float("inf") if None in errors else max(map(abs, errors))


def _value(row, value) -> str:
    if value is None:
        return ""
    return {"s": duration, "bytes": size}.get(row.unit, lambda number: f"{number:.6g}")(value)


def _error(row, error: float | None, signed: bool = True) -> str:
    if error is None:
        return "?"
    if row.error_of in ("bytes", "ranks"):
        return f"{error:+.0f}" if signed and error else f"{error:.0f}"
    if row.figure == "losses":
        return f"{error:.1e}" if error else "0"
    return f"{error:+.1%}" if signed and row.real is not None else f"{error:.1%}"


def _print(output: Output, plan, runs: int, names: list[str], rows, footer) -> None:
    from rich.table import Table

    title = f"validated {plan.program.name}: {plan.ranks} ranks, {plan}, {runs} real runs"
    table = Table(title=title, title_justify="left", box=None, pad_edge=True)
    for name in ("figure", "of"):
        table.add_column(name)
    for name in ("real", "spread", *(column for one in names for column in (one, "error", ""))):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [row.figure, row.of, _value(row, row.real), _error(row, row.spread, signed=False)]
        for name in names:
            figure = row.predicted.get(name)
            verdict = ("ok" if figure.ok else "off") if figure else ""
            cells += [_value(row, figure.value), _error(row, figure.error), verdict] if figure else ["", "", ""]
        table.add_row(*cells)
    console = output.console()
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    lines += [f" {name:8}  {text}" for name, text in footer]
    output.print("".join(line + "\n" for line in lines))
