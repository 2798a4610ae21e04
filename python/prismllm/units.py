"""Numbers for people."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Four digits."""
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if abs(seconds) * scale >= 0.99995:
            value = seconds * scale
            return f"{value:.4g} {unit}" if abs(value) < 9999.5 else f"{value:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def counted(count: int, thing: str) -> str:
    """1 class, 2 classes."""
    plural = "es" if thing.endswith("s") else "s"
    return f"{count} {thing}{'' if count == 1 else plural}"
