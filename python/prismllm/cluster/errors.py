"""A mistake in a cluster file, said in one line: file, line, field, value, and what is accepted."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


class ClusterError(ValueError):
    """The file cannot be used. `file` and `line` (from 1) say where; the text begins with them."""

    def __init__(self, file: str, line: int, text: str):
        super().__init__(f"{file}:{line}: {text}")
        self.file, self.line = file, line


def shown(value: object) -> str:
    """As a TOML file has it, cut to fit a line."""
    if isinstance(value, int) and abs(value) >= 10**60:  # Python refuses to print thousands of digits
        return f"a number of {value.bit_length()} bits"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)  # str: of a date
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:60] + "..."


@dataclass(frozen=True)
class Place:
    """Of a value in a file: its keys, elements of lists counted from 0, as in node[1].nic.bandwidth. `lines`: keys ->
    line."""

    file: str
    lines: Mapping[tuple, int] = field(repr=False, default_factory=dict)
    keys: tuple[str | int, ...] = ()

    def __truediv__(self, key: str | int) -> Place:
        return replace(self, keys=(*self.keys, key))

    def __str__(self) -> str:
        text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys)
        return text.removeprefix(".")

    @property
    def line(self) -> int:
        """Of the key, or of the nearest table around it that the file has."""
        known = (self.keys[:length] for length in range(len(self.keys), 0, -1))
        return next((self.lines[keys] for keys in known if keys in self.lines), 1)

    def error(self, text: str) -> ClusterError:
        return ClusterError(self.file, self.line, text)

    def wrong(self, value: object, accepted: str) -> ClusterError:
        return self.error(f"{self} = {shown(value)}; accepted: {accepted}")

    def missing(self, accepted: str) -> ClusterError:
        return self.error(f"{self} is missing; accepted: {accepted}")

    def unknown(self, keys: Iterable[str], where: str = "") -> ClusterError:
        return self.error(f"{self} is not a key{where}; {among(str(self.keys[-1]), keys)}")


def among(word: str, known: Iterable[str]) -> str:
    """The nearest of the known words first."""
    known = sorted(known)
    nearest = difflib.get_close_matches(word, known, n=1, cutoff=0)
    return f"nearest: {nearest[0]}; accepted: {', '.join(known)}" if nearest else "accepted: none"
