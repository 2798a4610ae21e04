"""What a rule is for: its conditions, checked where it is made and compared with each communication."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import Any

import torch

from prismllm import _graph
from prismllm.inputs.communication import Communication

_TEXTS = ("op", "group", "reduce_op", "call_site")
_NUMBERS = ("group_size", "root", "peer", "tag", "number", "nth", "iteration", "rank")
CONDITIONS = (*_TEXTS, *_NUMBERS, "dtype", "shape", "when")
_NAMES = {"op": _graph.OPS, "reduce_op": _graph.REDUCE_OPS}


def checked(rule: str, conditions: dict[str, Any]) -> dict[str, Any]:
    """Those that are given. TypeError or ValueError where one could never hold."""
    if unknown := sorted(set(conditions) - set(CONDITIONS)):
        raise TypeError(f"{rule}: unknown condition '{unknown[0]}'; accepted: {', '.join(CONDITIONS)}")
    given = {key: wanted for key, wanted in conditions.items() if wanted is not None}
    for key, wanted in given.items():
        if (accepted := _wrong(key, wanted)) is not None:
            raise ValueError(f"{rule}: {key}={wanted!r:.60}; accepted: {accepted}")
    return given


def _wrong(key: str, wanted: Any) -> str | None:
    """What would be accepted, or None."""
    if key == "when":
        return None if callable(wanted) else "a function of the communication"
    if key == "shape":
        sizes = isinstance(wanted, list | tuple) and all(one is None or _is_number(one) for one in wanted)
        return None if sizes else "a tuple of sizes, None for any"
    several = _several(wanted)
    if key in _NUMBERS:
        right = isinstance(wanted, range) or all(_is_number(one) for one in several)
        return None if right else "a number, several, or a range"
    if key == "dtype":
        return None if all(_is_dtype(one) for one in several) else "a torch.dtype, its name, or several"
    if not all(isinstance(one, str) for one in several):
        return "text with * and ?, or several"
    names = _NAMES.get(key)
    if names and not all(fnmatch.filter(names, one) for one in several):
        return f"of {', '.join(names)}, with * and ?"
    return None


def _several(wanted: Any) -> list:
    return list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype) or (
        isinstance(value, str) and isinstance(getattr(torch, value.removeprefix("torch."), None), torch.dtype)
    )


def fit(conditions: dict[str, Any], communication: Communication) -> bool:
    return all(_FITS[key](communication, wanted) for key, wanted in conditions.items())


def may_be_real(conditions: dict[str, Any]) -> bool:
    """Whether they may hold for a tensor of real or complex numbers."""
    names = (str(one).removeprefix("torch.") for one in _several(conditions.get("dtype", "float32")))
    dtypes = (getattr(torch, name) for name in names)
    return any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)


def for_rank(conditions: dict[str, Any], rank: int) -> bool:
    return "rank" not in conditions or _number(rank, conditions["rank"])


def _text(*values: str):
    return lambda wanted: any(fnmatch.fnmatchcase(value, one) for one in _several(wanted) for value in values)


def _number(value: int, wanted: int | Iterable[int]) -> bool:
    return value == wanted if isinstance(wanted, int) else value in wanted


def _dtype(communication: Communication, wanted) -> bool:
    name = str(communication.dtype).removeprefix("torch.")
    return any(name == str(one).removeprefix("torch.") for one in _several(wanted))


def _shape(communication: Communication, wanted) -> bool:
    shape = communication.shape
    return (
        shape is not None
        and len(shape) == len(wanted)
        and all(want is None or want == have for have, want in zip(shape, wanted, strict=True))
    )


def _call_site(communication: Communication, wanted) -> bool:
    sites = [f"{file}:{line} in {function}" for file, line, function in communication.frames]
    return _text(*sites)(wanted)


_FITS: dict[str, Callable[[Communication, Any], bool]] = {
    "op": lambda c, wanted: _text(c.op)(wanted),
    "group": lambda c, wanted: _text(c.group, c.description)(wanted),
    "reduce_op": lambda c, wanted: _text(c.reduce_op)(wanted),
    "call_site": _call_site,
    "group_size": lambda c, wanted: _number(c.size, wanted),
    "root": lambda c, wanted: _number(c.root, wanted),
    "peer": lambda c, wanted: _number(c.peer, wanted),
    "tag": lambda c, wanted: _number(c.tag, wanted),
    "number": lambda c, wanted: _number(c.number, wanted),
    "nth": lambda c, wanted: _number(c.nth, wanted),
    "iteration": lambda c, wanted: _number(c.iteration, wanted),
    "rank": lambda c, wanted: _number(c.rank, wanted),
    "dtype": _dtype,
    "shape": _shape,
    "when": lambda c, wanted: bool(wanted(c)),
}
