"""Scenario files: a what-if as TOML (docs/what_if.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from prismllm.replay.what_if import KEYS, Communication, Edit, LinkEdit, Overlap, shown


@dataclass(frozen=True)
class Links:
    """For traces without measured communication: a message of c bytes takes latency_s + c / bytes_per_second."""

    latency_s: float = 20e-6
    bytes_per_second: float = 1.25e9


@dataclass(frozen=True)
class Scenario:
    edits: tuple[Edit, ...] = ()
    communications: tuple[Communication, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    link_edits: tuple[LinkEdit, ...] = ()
    links: Links | None = None


# table: what it makes, and the keys of which it needs one
_TABLES = {
    "edit": (Edit, ("scale", "add_s", "set_s")),
    "communication": (Communication, ("scale", "add_s", "set_s")),
    "overlap": (Overlap, ("until", "until_span")),
    "link": (LinkEdit, ("scale", "bytes_per_second", "latency_s")),
}


def load_scenario(path: str | os.PathLike) -> Scenario:
    """ValueError with table, number, key, value and what is accepted, for whatever is not a scenario."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib

    if not os.path.isfile(path):  # a pipe might never end
        raise ValueError("not a regular file")
    with open(path, "rb") as file:
        try:
            given = tomllib.load(file)
        except RecursionError:
            raise ValueError("values are nested too deeply") from None
    if unknown := sorted(given.keys() - _TABLES.keys() - {"links"}):
        tables = ", ".join(f"[[{name}]]" for name in _TABLES)
        raise ValueError(f"'{unknown[0]}' is not known; accepted: tables {tables}, [links]")
    read = {name: _tables(name, given.get(name, [])) for name in _TABLES}
    links = _links(given["links"]) if "links" in given else None
    return Scenario(read["edit"], read["communication"], read["overlap"], read["link"], links)


def _tables(name: str, tables) -> tuple:
    kind, needed = _TABLES[name]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{name} = {shown(tables)}; accepted: tables [[{name}]]")
    field_of = {KEYS.get(field.name, field.name): field.name for field in fields(kind)}
    made = []
    for number, table in enumerate(tables):
        if unknown := sorted(table.keys() - field_of.keys()):
            key = unknown[0]
            raise ValueError(f"{name} {number}: {key} = {shown(table[key])}; accepted: {', '.join(field_of)}")
        if kind is LinkEdit and "name" not in table:
            raise ValueError(f"{name} {number}: give it the name of links, as a pattern")
        try:
            made.append(kind(**{field_of[key]: value for key, value in table.items()}))
        except ValueError as reason:
            raise ValueError(f"{name} {number}: {reason}") from None
        if not table.keys() & set(needed):
            raise ValueError(f"{name} {number} changes nothing: give it {', '.join(needed[:-1])} or {needed[-1]}")
    return tuple(made)


def _links(table) -> Links:
    if not isinstance(table, dict):
        raise ValueError(f"links = {shown(table)}; accepted: a table [links]")
    accepted = {"latency_s": (0, 1), "bytes_per_second": (1e-3, 1e18)}
    for key, value in table.items():
        if key not in accepted:
            raise ValueError(f"links: {key} = {shown(value)}; accepted: {', '.join(accepted)}")
        low, high = accepted[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"links: {key} = {shown(value)}; accepted: {low:g} to {high:g}")
    return Links(**table)
