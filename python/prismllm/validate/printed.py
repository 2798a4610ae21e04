"""What programs print about themselves: losses, and the times of their iterations."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from prismllm.launch import LaunchError, LaunchResult
from prismllm.testbed.times import read_line, read_times

_LOG = re.compile(r"rank(\d+)\.out")
_KEYS = ("losses", "loss")


def losses(log_dir: str, pattern: str | None = None) -> dict[int, list[float]]:
    """By rank, of the ranks that print any: the numbers under "losses" or "loss" of a line `RESULT {...}`; with a
    pattern what its first group matches, in each line. LaunchError where that is no number."""
    found = {}
    for entry in sorted(os.listdir(log_dir)):
        if not (match := _LOG.fullmatch(entry)):
            continue
        path, rank = os.path.join(log_dir, entry), int(match[1])
        values = _matching(path, rank, pattern) if pattern else _of_result(path, rank)
        if values:
            found[rank] = values
    return found


def printed_iterations(log_dir: str, ranks: int) -> float | None:
    """The median iteration of the slowest rank as lines TIMES tell it (prismllm.testbed.times); None where the program
    does not."""
    try:
        return read_times(log_dir, ranks, LaunchResult()).iteration_s
    except LaunchError:
        return None


def _of_result(path: str, rank: int) -> list[float]:
    result = read_line(path, "RESULT ", rank) or {}
    values = next((result[key] for key in _KEYS if key in result), [])
    values = values if isinstance(values, list) else [values]
    if not all(type(value) in (int, float) for value in values):
        raise LaunchError(f"rank {rank} printed losses {str(values)[:80]}; accepted: numbers", 3)
    return [float(value) for value in values]


def _matching(path: str, rank: int, pattern: str) -> list[float]:
    texts = re.findall(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    try:
        return [float(text) for text in texts]
    except ValueError as reason:
        raise LaunchError(f"rank {rank} printed a loss that is none: {reason}", 2) from None


def apart(a: list[float], b: list[float]) -> float:
    """The largest relative difference; infinite where they are not as many, or one is no number and the other is."""
    if len(a) != len(b):
        return math.inf
    worst = 0.0
    for one, other in zip(a, b, strict=True):
        if (math.isnan(one) and math.isnan(other)) or one == other:
            continue
        if not (math.isfinite(one) and math.isfinite(other)):
            return math.inf
        worst = max(worst, abs(one - other) / max(abs(one), abs(other)))
    return worst
