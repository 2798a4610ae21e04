"""Rules: which communications they are for, and what they answer. The first that fits answers."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from prismllm.inputs import conditions
from prismllm.inputs.communication import Communication
from prismllm.inputs.generators import Generator, Recorded, constant


@dataclass
class Rule:
    """One rule; made by rule()."""

    name: str
    place: str  # where it stands: FILE:LINE
    conditions: dict[str, Any]
    optional: bool = False  # need not fit anything
    answer: Callable[[Communication], list] | None = field(default=None, repr=False)
    also: Callable[[Communication], bool] | None = field(default=None, repr=False)  # a condition of the answer's
    recorded: Any = field(default=None, repr=False)  # Recorded that it looks into

    def peers(self, generator: Generator | float | int | bool) -> Rule:
        """The peers put in what `generator` makes (prismllm.inputs.zeros() and so on, or a function of your own of
        (communication, peer's group rank, tensor like which) that gives a tensor or a number); what comes out is what
        the operation makes of that and of this rank's own. For a PREMUL_SUM, give what is already multiplied."""
        make = generator if callable(generator) else constant(self._number("peers", generator))
        self._takes("peers", make, "(communication, peer, like)")
        same = getattr(make, "same", False)

        def answer(communication: Communication) -> list:
            def contribution(peer: int) -> list:
                return [as_like(make(communication, peer, like), like) for like in communication.sent_by(peer)]

            return communication.result(contribution, same)

        if isinstance(make, Recorded):
            from prismllm.inputs.objects import brings_objects

            self.recorded, self.also = make, lambda communication: not brings_objects(communication)
        return self._answers(answer)

    def result(self, result: Callable[[Communication], Any] | Generator | float | int | bool) -> Rule:
        """What comes out, whatever this rank has put in: a number for all elements, one of zeros(), constant(),
        integers() and normal(), or a function of the communication that gives one tensor or number for each of its
        outputs (or one alone where there is one)."""
        if isinstance(result, Recorded) or getattr(result, "of_peers", False):
            raise TypeError(f"{self}: it says what peers put in; accepted: to give it to .peers()")
        if not callable(result):
            self._number("result", result)
            make = lambda communication: [result] * len(communication.outputs)  # noqa: E731
        elif getattr(result, "is_generator", False):
            make = lambda c: [result(c, c.group_rank, like) for like in c.outputs]  # noqa: E731
        else:
            self._takes("result", result, "(communication)")
            make = result

        def answer(communication: Communication) -> list:
            made = make(communication)
            made = list(made) if isinstance(made, list | tuple) else [made]
            if len(made) != len(communication.outputs):
                raise ValueError(f"it gave {len(made)} tensors; accepted: {len(communication.outputs)}")
            return [as_like(one, like) for one, like in zip(made, communication.outputs, strict=True)]

        return self._answers(answer)

    def _answers(self, answer: Callable[[Communication], list]) -> Rule:
        if self.answer is not None:
            raise TypeError(f"{self} has an answer already; accepted: one .peers() or .result()")
        self.answer = answer
        return self

    def _number(self, method: str, value: Any) -> Any:
        if not isinstance(value, bool | int | float | complex):
            raise TypeError(f"{self}: .{method}({value!r:.60}); accepted: a number or a function")
        return value

    def _takes(self, method: str, function: Callable, arguments: str) -> None:
        try:
            inspect.signature(function).bind(*arguments.split(","))
        except (TypeError, ValueError):
            name = getattr(function, "__name__", repr(function))
            raise TypeError(f"{self}: .{method}({name}); accepted: a function of {arguments}") from None

    def fits(self, communication: Communication) -> bool:
        return conditions.fit(self.conditions, communication) and (self.also is None or self.also(communication))

    def __str__(self) -> str:
        return f"rule '{self.name}' ({self.place})"


def as_like(made: Any, like):
    """A generator's answer as a tensor: TypeError or ValueError where it does not fit."""
    import torch

    if isinstance(made, bool | int | float | complex):
        return torch.full_like(like, made)
    if not isinstance(made, torch.Tensor):
        raise TypeError(f"it gave a {type(made).__name__}; accepted: a tensor or a number")
    if made.layout != torch.strided:
        raise ValueError(f"it gave a tensor of layout {made.layout}; accepted: {torch.strided}")
    what = f"a {str(made.dtype).removeprefix('torch.')} tensor of {list(made.shape)} on {made.device}"
    if made.shape != like.shape or made.dtype != like.dtype or made.device.type not in ("cpu", like.device.type):
        wanted = f"{str(like.dtype).removeprefix('torch.')} of {list(like.shape)} on {like.device}"
        raise ValueError(f"it gave {what}; accepted: {wanted}")
    return made


def rule(name: str = "", *, optional: bool = False, **wanted) -> Rule:
    """A rule for the communications that fulfil all conditions; give it its answer with .peers() or .result().

    op, group, reduce_op, call_site: text with * and ?, or several of them. `group` is compared with the group's key and
        with what DeviceMesh or the program calls it; `call_site` with "FILE:LINE in FUNCTION" of every Python call that
        led to the communication.
    group_size, root, peer, tag, number, nth, iteration, rank: a number, several, or a range. root and peer are group
        ranks; `nth` counts what one line of the program (and one operation) does, from 0.
    dtype: a torch.dtype, or its name, or several.   shape: of the first tensor; None stands for any size.
    when: a function of the communication.
    optional: a rule that fits nothing in the whole run is an error, unless it is.
    """
    line, place = _place()
    if not isinstance(optional, bool):
        raise TypeError(f"rule '{name}' ({place}): optional={optional!r:.60}; accepted: True, False")
    given = conditions.checked(f"rule '{name or f'line {line}'}' ({place})", wanted)
    made = Rule(name or f"line {line}", place, given, optional)
    _made.append(made)
    return made


def _place() -> tuple[int, str]:
    """Of the line in the user's file, out of a ready-made rule."""
    caller = sys._getframe(1)
    while caller.f_back is not None and os.path.dirname(caller.f_code.co_filename) == os.path.dirname(__file__):
        caller = caller.f_back
    return caller.f_lineno, f"{caller.f_code.co_filename}:{caller.f_lineno}"


_made: list[Rule] = []


@dataclass
class KeyRule:
    """What keys of the store hold that other ranks would have set."""

    pattern: str
    value: bytes | Callable[[str], bytes | str]
    place: str
    optional: bool

    def content(self, key: str) -> bytes:
        made = self.value(key) if callable(self.value) else self.value
        if not isinstance(made, str | bytes):
            raise TypeError(f"it gave a {type(made).__name__}; accepted: text or bytes")
        return made.encode() if isinstance(made, str) else made

    def fits(self, key: str) -> bool:
        return any(fnmatchcase(one, self.pattern) for one in (key, key.rpartition("/")[2]))

    def __str__(self) -> str:
        return f"store('{self.pattern}') ({self.place})"


def store(key: str, value: str | bytes | Callable[[str], Any], optional: bool = False) -> None:
    """What a key of the store holds that another rank would have set: text, bytes, or a function of the key. `key`,
    with * and ?, is compared with the whole key and with what stands behind its last slash."""
    if not isinstance(value, str | bytes) and not callable(value):
        raise TypeError(f"store({key!r}, {value!r:.60}); accepted: text, bytes or a function of the key")
    _keys.append(KeyRule(key, value, _place()[1], optional))


_keys: list[KeyRule] = []


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
    optional: bool = False
    missed: Callable[[], str] = lambda: ""  # what there was in the place of what it is for

    def __str__(self) -> str:
        return self.name


def add_setup(
    name: str, begin: Callable[[Callable[[], None]], None], optional: bool, missed: Callable[[], str]
) -> None:
    _setups.append(Setup(name, begin, optional, missed))


_setups: list[Setup] = []


class Rules(list[Rule]):
    """In their order; `classes`: as classes() has been given them, or None."""

    classes: list | None = None  # [world size]: ranks with the same are one
    setups: list[Setup] = []  # noqa: RUF012 (replaced, never changed)
    keys: list[KeyRule] = []  # noqa: RUF012

    @property
    def of_real_numbers(self) -> bool:
        """Whether some rule may be for tensors of real or complex numbers."""
        return any(conditions.may_be_real(rule.conditions) for rule in self)

    def rules_of_rank(self, rank: int) -> tuple[bool, ...]:
        """Which of the rules that are for some ranks are for this one."""
        return tuple(conditions.for_rank(rule.conditions, rank) for rule in self if "rank" in rule.conditions)


def take_rules(world_size: int = 0) -> Rules:
    """Those made since the last call, in the order in which they were made. What a function of the user's raises."""
    rules = Rules(_made)
    if _classes:
        of, number = _classes[-1], {}
        rules.classes = [number.setdefault(of(rank), len(number)) for rank in range(world_size)]
    rules.setups, rules.keys = list(_setups), list(_keys)
    for made in (_made, _classes, _setups, _keys):
        made.clear()
    return rules
