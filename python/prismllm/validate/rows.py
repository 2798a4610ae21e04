"""Rows of the error table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Figure:
    """`value` in the row's unit, None for a quantile of differences; `error` as the row's `error_of` says, None where
    it cannot be compared."""

    value: float | None
    error: float | None
    ok: bool


@dataclass(frozen=True)
class Row:
    """`real`: the median of the runs, None for a quantile of differences; `spread`: how far the runs are from each
    other, as errors are; `bound`: what an error may be."""

    figure: str
    of: str  # which ranks, which communication
    unit: str  # "s", "bytes", "ranks" or ""
    error_of: str  # "itself", "iteration" or "span": a share of it; "bytes" or "ranks": a difference
    real: float | None
    spread: float
    bound: float
    predicted: dict[str, Figure] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Of the emulated figure, where there is one."""
        return (self.predicted.get("emulated") or self.predicted["calibrated"]).ok

    def to_json(self) -> dict:
        return asdict(self) | {"ok": self.ok}


def to_tsv(rows: list[Row]) -> str:
    """One line a row; times in seconds, errors and spreads as `error_of` says."""
    names = list(dict.fromkeys(name for row in rows for name in row.predicted))
    lines = [["figure", "of", "unit", "error_of", "real", "spread", "bound"]]
    for name in names:
        lines[0] += [name, f"{name}_error", f"{name}_ok"]
    for row in rows:
        cells = [row.figure, row.of, row.unit, row.error_of, row.real, row.spread, row.bound]
        for name in names:
            figure = row.predicted.get(name)
            cells += [figure.value, figure.error, "yes" if figure.ok else "no"] if figure else [None, None, None]
        lines.append(["" if cell is None else str(cell) for cell in cells])
    return "".join("\t".join(line) + "\n" for line in lines)
