"""Rules: which communications they are for, and what they answer. The first that fits answers."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from prismllm.inputs.communication import Communication
from prismllm.inputs.generators import Generator, Recorded, constant

_CONDITIONS = ("op", "group", "group_size", "reduce_op", "root", "peer", "tag", "number", "iteration", "rank", "dtype",
         "shape", "call_site", "when")  # fmt: skip


@dataclass
class Rule:
    """One rule; made by rule()."""

    name: str
    place: str  # where it stands: FILE:LINE
    conditions: dict[str, Any]
    optional: bool = False  # need not fit anything
    answer: Callable[[Communication], list] | None = field(default=None, repr=False)
    also: Callable[[Communication], bool] | None = field(default=None, repr=False)  # a condition of the answer's

    def peers(self, generator: Generator | float | int | bool) -> Rule:
        """The peers put in what `generator` makes (prismllm.inputs.zeros() and so on, or a function of your own of
        (communication, peer's group rank, tensor like which) that gives a tensor or a number); what comes out is what
        the operation makes of that and of this rank's own."""
        make = generator if callable(generator) else constant(generator)
        same = getattr(make, "same", False)

        def answer(communication: Communication) -> list:
            def contribution(peer: int) -> list:
                return [as_like(make(communication, peer, like), like) for like in communication.sent_by(peer)]

            return communication.result(contribution, same)

        self.answer = answer
        self.generator = make
        if isinstance(make, Recorded):
            from prismllm.inputs.objects import brings_objects

            self.also = lambda communication: not brings_objects(communication)
        return self

    def result(self, result: Callable[[Communication], Any] | float | int | bool) -> Rule:
        """What comes out, whatever this rank has put in: a number for all elements, or a function of the communication
        that gives one tensor or number for each of its outputs (or one alone where there is one)."""

        def answer(communication: Communication) -> list:
            made = result(communication) if callable(result) else [result] * len(communication.outputs)
            made = list(made) if isinstance(made, list | tuple) else [made]
            if len(made) != len(communication.outputs):
                raise ValueError(f"it gave {len(made)} tensors; accepted: {len(communication.outputs)}")
            return [as_like(one, like) for one, like in zip(made, communication.outputs, strict=True)]

        self.answer = answer
        return self

    def fits(self, communication: Communication) -> bool:
        return all(_FITS[key](communication, wanted) for key, wanted in self.conditions.items()) and (
            self.also is None or self.also(communication)
        )

    def __str__(self) -> str:
        return f"rule '{self.name}' ({self.place})"


def as_like(made: Any, like):
    """A generator's answer as a tensor: TypeError or ValueError where it does not fit."""
    import torch

    if isinstance(made, bool | int | float | complex):
        return torch.full_like(like, made)
    if not isinstance(made, torch.Tensor):
        raise TypeError(f"it gave a {type(made).__name__}; accepted: a tensor or a number")
    what = f"a {str(made.dtype).removeprefix('torch.')} tensor of {list(made.shape)} on {made.device}"
    if made.shape != like.shape or made.dtype != like.dtype or made.device.type not in ("cpu", like.device.type):
        wanted = f"{str(like.dtype).removeprefix('torch.')} of {list(like.shape)} on {like.device}"
        raise ValueError(f"it gave {what}; accepted: {wanted}")
    return made


def rule(name: str = "", *, optional: bool = False, **conditions) -> Rule:
    """A rule for the communications that fulfil all conditions; give it its answer with .peers() or .result().

    op, group, reduce_op, call_site: text with * and ?, or several of them. `group` is compared with the group's key and
        with what DeviceMesh or the program calls it; `call_site` with "FILE:LINE in FUNCTION" of every Python call that
        led to the communication.
    group_size, root, peer, tag, number, iteration, rank: a number, several, or a range.
    dtype: a torch.dtype, or its name, or several.   shape: of the first tensor; None stands for any size.
    when: a function of the communication.
    optional: a rule that fits nothing in the whole run is an error, unless it is.
    """
    if unknown := sorted(set(conditions) - set(_CONDITIONS)):
        raise TypeError(f"rule({name!r}): unknown condition '{unknown[0]}'; accepted: {', '.join(_CONDITIONS)}")
    if callable(when := conditions.get("when")) is False and when is not None:
        raise TypeError(f"rule({name!r}): when={when!r}; accepted: a function of the communication")
    caller = sys._getframe(1)
    while caller.f_back is not None and os.path.dirname(caller.f_code.co_filename) == os.path.dirname(__file__):
        caller = caller.f_back  # out of a ready-made rule
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    given = {key: wanted for key, wanted in conditions.items() if wanted is not None}
    made = Rule(name or f"line {caller.f_lineno}", place, given, optional)
    _made.append(made)
    return made


_made: list[Rule] = []


def classes(of: Callable[[int], Any]) -> None:
    """Ranks for which `of(rank)` gives the same do the same: one of them runs, and a sample of the others. In the place
    of the classes that prism finds by itself."""
    if not callable(of):
        raise TypeError(f"classes({of!r}); accepted: a function of the rank")
    _classes.append(of)


_classes: list[Callable[[int], Any]] = []


@dataclass
class Setup:
    """What a file of rules does to every rank before its program starts: `begin(used)`, which calls `used` when it has
    found what it is for."""

    name: str
    begin: Callable[[Callable[[], None]], None]

    def __str__(self) -> str:
        return self.name


def add_setup(name: str, begin: Callable[[Callable[[], None]], None]) -> None:
    _setups.append(Setup(name, begin))


_setups: list[Setup] = []


class Rules(list[Rule]):
    """In their order; `classes`: as classes() has been given them, or None."""

    classes: Callable[[int], Any] | None = None
    setups: list[Setup] = []  # noqa: RUF012 (replaced, never changed)

    def told_apart(self, rank: int) -> tuple[bool, ...]:
        """Which of the rules that are for some ranks are for this one."""
        return tuple(_number(rank, rule.conditions["rank"]) for rule in self if "rank" in rule.conditions)


def take_rules() -> Rules:
    """Those made since the last call, in the order in which they were made."""
    rules = Rules(_made)
    rules.classes = _classes[-1] if _classes else None
    rules.setups = list(_setups)
    for made in (_made, _classes, _setups):
        made.clear()
    return rules


def _texts(wanted: str | Iterable[str]) -> list[str]:
    return [wanted] if isinstance(wanted, str) else list(wanted)


def _text(*values: str):
    return lambda wanted: any(fnmatch.fnmatchcase(value, one) for one in _texts(wanted) for value in values)


def _number(value: int, wanted: int | Iterable[int]) -> bool:
    return value == wanted if isinstance(wanted, int) else value in wanted


def _dtype(communication: Communication, wanted) -> bool:
    name = str(communication.dtype).removeprefix("torch.")
    several = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    return any(name == str(one).removeprefix("torch.") for one in several)


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
    "iteration": lambda c, wanted: _number(c.iteration, wanted),
    "rank": lambda c, wanted: _number(c.rank, wanted),
    "dtype": _dtype,
    "shape": _shape,
    "when": lambda c, wanted: bool(wanted(c)),
}
