"""A rank that runs alone: its communications and store keys answered by the rules, and a list of who answered what."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import random
import runpy
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator

from prismllm.inputs import builtin
from prismllm.inputs.communication import TORCH, Communication
from prismllm.inputs.generators import Recorded
from prismllm.inputs.rule import Rule, Rules, take_rules

_SITE = 8  # calls that tell where a group was made
BUILTIN = "builtin"  # in the place of a file: no rules but ours


class RulesError(Exception):
    """The rules file cannot be used; the text says why, in a line or with a traceback."""


def load(path: str, world_size: int) -> Rules:
    """The rules of a file, in the order in which they stand."""
    if path == BUILTIN:
        return Rules()
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    take_rules()
    try:
        runpy.run_path(path, run_name="rules")
    except OSError as reason:
        if reason.filename != path:
            raise RulesError(_own_traceback(path)) from None
        raise RulesError(f"--inputs: '{path}': {reason.strerror}") from None
    except BaseException:
        raise RulesError(_own_traceback(path)) from None
    finally:
        sys.path.remove(folder)
    rules = take_rules()
    for rule in rules:
        if rule.answer is None:
            raise RulesError(f"--inputs: {rule} has no answer; give it one with .peers() or .result()")
        generator = getattr(rule, "generator", None)
        if isinstance(generator, Recorded):
            try:
                generator.check_world(world_size)
            except ValueError as reason:
                raise RulesError(f"--inputs: {rule}: {reason}") from None
    return rules


def _own_traceback(path: str) -> str:
    """Of the exception in handling, without what is ours and runpy's."""
    kind, value, trace = sys.exc_info()
    steps = traceback.extract_tb(trace)
    first = next((i for i, step in enumerate(steps) if step.filename == path), len(steps))
    lines = traceback.format_list(steps[first:]) + traceback.format_exception_only(kind, value)
    return f"--inputs: '{path}' does not load\n" + "".join(lines).rstrip()


class Answering:
    """Of one rank."""

    def __init__(self, rules: Rules, rank: int, world_size: int):
        self.rules = rules
        self.rank, self.world_size = rank, world_size
        self.iteration = 0
        self._here = threading.local()  # autograd communicates from threads of its own
        self.failure = ""  # the first; also where the program has caught it
        self.used: Counter[int] = Counter()  # times, by place in rules
        self.setups_used: Counter[str] = Counter()
        self.answered: Counter[tuple] = Counter()
        self._descriptions: dict[str, str] = {}
        self._groups: list[tuple[str, list[int], str]] = []  # made by the program: key, members, where

    def start(self) -> None:
        """From now on; in the rank's process, before its program."""
        import torch.distributed.distributed_c10d as c10d
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from prismllm import _c10d

        register_optimizer_step_post_hook(self._count_step)
        make = c10d._new_process_group_helper

        @functools.wraps(make)
        def note_group(*args, **keywords):
            given = inspect.signature(make).bind(*args, **keywords).arguments
            made = make(*args, **keywords)
            self._note_group(given["group_name"], list(given["global_ranks_in_group"]))
            return made

        c10d._new_process_group_helper = note_group
        c10d._store_based_barrier = lambda *_, **__: None  # all others would have come
        for setup in self.rules.setups:
            setup.begin(functools.partial(self.setups_used.update, [str(setup)]))
        _c10d.answer_with(self.communication, self.store_key)

    def _count_step(self, *_) -> None:
        if not getattr(self._here, "answering", ""):
            self.iteration += 1

    def communication(self, group, members, group_rank, op, reduce_op, root, peer, tag, number, inputs, outputs):
        if getattr(self._here, "answering", ""):
            raise self._failed(f"{self._here.answering}: it communicates itself ({op}); accepted: to answer")
        asked = Communication(self.rank, group, members, group_rank, op, reduce_op, root, peer, tag, number,
                              self.iteration, self._description(group), inputs, outputs)  # fmt: skip
        by, answer = self._answer(asked)
        self.answered[(by, *_listed(asked))] += 1
        source = next(iter(asked.senders()), -1) if op == "recv" else -1
        return answer, source

    def _answer(self, asked: Communication) -> tuple[str, list]:
        for place, rule in enumerate(self.rules):
            try:
                if rule.fits(asked):
                    self.used[place] += 1
                    with self._apart(rule):
                        return rule.name, rule.answer(asked)
            except Exception as reason:
                raise self._failed(f"{rule}: {_in_words(reason)}; for {asked}") from reason
        if (objects := builtin.objects_like_mine(asked)) is not None:
            return builtin.OBJECTS, objects
        return builtin.DEFAULT, builtin.default(asked)

    @contextlib.contextmanager
    def _apart(self, rule: Rule) -> Iterator[None]:
        """What a rule does leaves no mark on the program: no optimizer step, no drawn random number."""
        import torch

        self._here.answering, drawn = str(rule), random.getstate()
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            self._here.answering = ""
            random.setstate(drawn)

    def store_key(self, key: str) -> bytes:
        raise self._failed(
            f"rank {self.rank} runs alone and waits for the store's key '{key}', which another rank would have set"
        )

    def _failed(self, text: str) -> RuntimeError:
        self.failure = self.failure or text
        return RuntimeError(f"prism capture --inputs: {text}")

    def _note_group(self, name: str, members: list[int]) -> None:
        from prismllm import creators

        frame, site = sys._getframe(2), []
        while frame is not None and len(site) < _SITE:
            if not frame.f_code.co_filename.startswith(TORCH):
                site.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            frame = frame.f_back
        key = creators.key_of(name)
        self._groups.append((key, members or list(range(self.world_size)), " < ".join(site)))

    def _description(self, group: str) -> str:
        if group not in self._descriptions:
            import torch.distributed.distributed_c10d as c10d

            name = group.rpartition("/")[2]
            found = [pg for pg, known in c10d._world.pg_names.items() if known == name]
            text = found[-1].group_desc if found else ""
            self._descriptions[group] = "" if text == "undefined" else text
        return self._descriptions[group]

    def write(self, path: str) -> None:
        """Who answered what, for the command line."""
        rules = [[str(rule), rule.optional, self.used[place]] for place, rule in enumerate(self.rules)]
        rules += [[str(setup), False, self.setups_used[str(setup)]] for setup in self.rules.setups]
        answered = [[*what, times] for what, times in self.answered.items()]
        with open(path, "w") as file:
            json.dump({"rules": rules, "answered": answered, "groups": self._groups if self.rank == 0 else []}, file)


def _listed(asked: Communication) -> tuple:
    dtype = "" if asked.dtype is None else str(asked.dtype).removeprefix("torch.")
    return asked.op, asked.description, asked.size, dtype, asked.shape or (), asked.call_site


def _in_words(reason: Exception) -> str:
    text = str(reason).partition("\n")[0]
    return text if isinstance(reason, ValueError | TypeError) and text else f"{type(reason).__name__}: {text}"
