"""What is changed in a replay. Names are patterns as of file names (`*`, `?`, `[ab]`), or exact; None matches all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real

from prismllm import _replay

_MOST = 2**31 - 1
_INTEGER = (Integral, 0, _MOST, f"0 to {_MOST}")
_TEXT = (str, "", chr(0x10FFFF), "text")
# key: kind, least, most, what is accepted; NaN is in no range
_VALUES = {
    "rank": _INTEGER, "iteration": _INTEGER, "node": _INTEGER, "class_id": _INTEGER,
    "name": _TEXT, "op": _TEXT, "group": _TEXT, "until_span": _TEXT,
    "scale": (Real, 0, 10**9, f"0 to {10**9}"),
    "add_s": (Real, -9 * 10**9, 9 * 10**9, f"{-9 * 10**9} to {9 * 10**9}"),
    "set_s": (Real, 0, 9 * 10**9, f"0 to {9 * 10**9}"),
    "bytes_per_second": (Real, 1e-3, 10**18, f"0.001 to {10**18}"), "latency_s": (Real, 0, 1, "0 to 1"),
}  # fmt: skip
_NEVER_NONE = ("scale", "add_s")
KEYS = {"class_id": "class"}  # fields that have another name in a scenario


def shown(value) -> str:
    """A value for an error's one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _check(edit) -> None:
    if getattr(edit, "rank", None) is not None and edit.ranks is not None:
        raise ValueError(f"rank = {shown(edit.rank)} beside ranks = {shown(edit.ranks)}; accepted: one of them")
    for field in fields(edit):
        key, value = field.name, getattr(edit, field.name)
        if key == "ranks":
            rank_ranges(value)
        if key not in _VALUES or (value is None and key not in _NEVER_NONE):
            continue
        kind, least, most, accepted = _VALUES[key]
        if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
            raise ValueError(f"{KEYS.get(key, key)} = {shown(value)}; accepted: {accepted}")


def rank_ranges(ranks: str | int | Sequence[int] | None) -> list[tuple[int, int]]:
    """ "0-7,12", 12 or [0, 1, 12] as (first, last), both included; None: all, an empty list."""
    accepted = 'ranks and ascending ranges, as "0-7,12", or a list of ranks'
    if ranks is None:
        return []
    parts = ranks.split(",") if isinstance(ranks, str) else [ranks] if isinstance(ranks, Integral) else ranks
    ranges = []
    for part in parts if isinstance(parts, Sequence) else [None]:
        if isinstance(part, Integral) and not isinstance(part, bool):
            part = str(part)
        match = isinstance(part, str) and re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise ValueError(f"ranks = {shown(ranks)}; accepted: {accepted}")
        ranges.append((first, last))
    if not ranges:
        raise ValueError(f"ranks = {shown(ranks)}; accepted: {accepted}")
    return ranges


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


@dataclass(frozen=True)
class Edit:
    """The duration d of every compute span that matches, or set_s, becomes scale * d + add_s.

    `node` names one node of `rank` by its index."""

    rank: int | None = None
    iteration: int | None = None
    name: str | None = None
    node: int | None = None
    scale: float = 1.0
    add_s: float = 0.0
    ranks: str | Sequence[int] | None = None
    class_id: int | None = None
    set_s: float | None = None

    def __post_init__(self):
        _check(self)

    def native(self) -> _replay.SpanEdit:
        return _replay.SpanEdit(rank=self.rank, iteration=self.iteration, name=self.name, node=self.node,
                                scale=self.scale, add_ns=_nanoseconds(self.add_s), ranks=rank_ranges(self.ranks),
                                cls=self.class_id, set_ns=_nanoseconds(self.set_s))  # fmt: skip


@dataclass(frozen=True)
class Communication:
    """The same for the transfers of communications, by the record or the closed form: what they take once all whom they
    need have come. A collective changes for all its members when one that matches takes part, a message for both ends
    when either matches, op = "send" as well as "recv".
    Not on a network, where links say what a transfer takes."""

    op: str | None = None
    group: str | None = None
    ranks: str | Sequence[int] | None = None
    class_id: int | None = None
    iteration: int | None = None
    scale: float = 1.0
    add_s: float = 0.0
    set_s: float | None = None

    def __post_init__(self):
        _check(self)

    def native(self) -> _replay.CommunicationEdit:
        return _replay.CommunicationEdit(
            ranks=rank_ranges(self.ranks), cls=self.class_id, iteration=self.iteration, op=self.op, group=self.group,
            scale=self.scale, add_ns=_nanoseconds(self.add_s), set_ns=_nanoseconds(self.set_s))  # fmt: skip


@dataclass(frozen=True)
class Overlap:
    """Where ranks wait for collectives: `until` = "issue", right after the issue, so that nothing overlaps; or
    "iteration_end"; or `until_span`, before the next compute span of that name in the same iteration. Data are not
    looked at: it is for you to know that nothing needs the result before."""

    until: str | None = None
    until_span: str | None = None
    op: str | None = None
    group: str | None = None
    ranks: str | Sequence[int] | None = None
    class_id: int | None = None
    iteration: int | None = None

    def __post_init__(self):
        _check(self)
        if self.until not in (None, "issue", "iteration_end"):
            raise ValueError(f"until = {shown(self.until)}; accepted: issue, iteration_end")
        if (self.until is None) == (self.until_span is None):
            raise ValueError("until and until_span; accepted: one of them")

    def native(self) -> _replay.OverlapEdit:
        until = getattr(_replay.Until, self.until or "span")
        return _replay.OverlapEdit(
            until=until, span=self.until_span or "", ranks=rank_ranges(self.ranks), cls=self.class_id,
            iteration=self.iteration, op=self.op, group=self.group)  # fmt: skip


@dataclass(frozen=True)
class LinkEdit:
    """The links of a cluster whose name matches (both ways of a cable have one): their rate b, or bytes_per_second,
    becomes scale * b; their latency latency_s. A burst's line rate is scaled along."""

    name: str
    scale: float = 1.0
    bytes_per_second: float | None = None
    latency_s: float | None = None

    def __post_init__(self):
        _check(self)
        if self.scale == 0:
            raise ValueError(f"scale = {shown(self.scale)}; accepted: more than 0")
