"""A rank that runs alone: its communications and store keys answered by the rules, and a list of who answered what."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import random
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator

from prismllm.inputs import builtin
from prismllm.inputs.communication import TORCH, Communication
from prismllm.inputs.objects import ready_made_for
from prismllm.inputs.rule import Rule, Rules

_HERE = os.path.dirname(os.path.abspath(__file__))
_SITE = 8  # calls that tell where a group was made
_LAST = 5  # communications that a failed rank tells of
DEFAULT, OBJECTS = -1, -2  # in the place of a rule's number


class Answering:
    """Of one rank."""

    def __init__(self, rules: Rules, rank: int, world_size: int, quick: bool = False):
        """`quick`: what holds real numbers is answered without a word, where no rule is for it."""
        self.rules, self.quick = rules, quick and not rules.of_real_numbers
        self.rank, self.world_size = rank, world_size
        self.iteration = 0
        self._here = threading.local()  # autograd communicates from threads of its own
        self.failure = ""  # the first; also where the program has caught it
        self.asked = self.lacks_key = False  # something came by rules; a key of the store was waited for in vain
        self._wanting: str = ""  # which ready-made rule is for objects that were answered without one
        self.used: Counter[str] = Counter()  # times, by kind and number of rules, setups and keys
        self.answered: dict[tuple, list] = {}  # what -> [times, shapes, groups]
        self.without_answer = 0  # communications that bring nothing
        self.last: deque[str] = deque(maxlen=_LAST)
        self._at_site: Counter[tuple] = Counter()
        self._descriptions: dict[str, str] = {}
        self._groups: list[tuple[str, list[int], str]] = []  # made by the program: key, members, where

    def start(self) -> None:
        """From now on; in the rank's process, before its program."""
        import torch.distributed.distributed_c10d as c10d
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from prismllm import _c10d

        register_optimizer_step_post_hook(self._count_step)
        if self.rank == 0:  # every rank's program names all groups
            self._note_groups(c10d)
        c10d._store_based_barrier = lambda *_, **__: None  # all others would have come
        for number, setup in enumerate(self.rules.setups):
            setup.begin(functools.partial(self.used.update, [f"setup {number}"]))
        _c10d.answer_with(self.communication, self.store_key, self.absent_key, self.quick)

    def _count_step(self, *_) -> None:
        if not self.at_work:
            self.iteration += 1

    @property
    def at_work(self) -> Rule | None:
        """The rule that this thread is in."""
        return getattr(self._here, "answering", None)

    def communication(self, group, members, group_rank, op, reduce_op, root, peer, tag, number, inputs, outputs):
        if self.at_work:
            raise self._failed(f"{self.at_work}: it communicates itself ({op}); accepted: to answer")
        asked = Communication(self.rank, group, members, group_rank, op, reduce_op, root, peer, tag, number,
                              self.iteration, self._description(group), inputs, outputs,
                              caller=sys._getframe(1))  # fmt: skip
        sender = next(iter(asked.senders()), None)
        if sender is None:  # nobody sends it anything: a send, a barrier, the root of a broadcast
            self.without_answer += 1
            return builtin.default(asked), -1
        site = asked.call_site
        self.asked = True
        asked.nth = self._at_site[op, site]
        self._at_site[op, site] += 1
        by, name, answer = self._answer(asked)
        self._list(by, asked, site)
        values = answer[0].flatten()[:4].tolist() if answer and answer[0].numel() else []
        self.last.append(f"{name}: {asked}: {str(values)[1:-1]}{', ...' if len(values) == 4 else ''}")
        return answer, asked.senders()[0] if op == "recv" else -1

    def _answer(self, asked: Communication) -> tuple[int, str, list]:
        rule: object = "default"
        try:
            if self.rules:
                with self._apart():
                    for number, rule in enumerate(self.rules):
                        self._here.answering = rule
                        if rule.fits(asked):
                            self.used[f"rule {number}"] += 1
                            return number, rule.name, rule.answer(asked)
            rule = "default"
            if (objects := builtin.objects_like_mine(asked)) is not None:
                self._wanting = ready_made_for(asked)
                return OBJECTS, builtin.OBJECTS, objects
            return DEFAULT, builtin.DEFAULT, builtin.default(asked)
        except BaseException as reason:  # a rule that calls exit() has not answered
            raise self._failed(f"{rule}: {_in_words(reason)}; for {asked}") from reason

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """What a rule does leaves no mark on the program: no optimizer step, no drawn random number."""
        import torch

        numpy = sys.modules.get("numpy.random")
        drawn = random.getstate()
        numpys = numpy.get_state() if numpy else None
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            self._here.answering = None
            random.setstate(drawn)
            if numpy:
                numpy.set_state(numpys)

    def store_key(self, key: str) -> bytes | None:
        """What it holds that another rank would have set. None where no rule says it."""
        for number, rule in enumerate(self.rules.keys):
            if rule.fits(key):
                self.used[f"key {number}"] += 1
                try:
                    return rule.content(key)
                except BaseException as reason:
                    raise self._failed(f"{rule}: {_in_words(reason)}; for key '{key}'") from reason
        return None

    def absent_key(self, key: str) -> None:
        own = key.rpartition("/")[2]
        self.lacks_key = True
        raise self._failed(
            f"rank {self.rank} runs alone and waits for the store's key '{own}' (in whole '{key}'), which another rank "
            f"would set; say what it holds with inputs.store('{own}', ...)"
        )

    def _failed(self, text: str) -> RuntimeError:
        self.failure = self.failure or text
        return RuntimeError(f"prism capture --inputs: {text}")

    def last_words(self) -> str:
        """For a rank whose program has failed: what it was told, and which rules have not been used."""
        said = [f"rank {self.rank} ran alone on values that rules made; the last that it received:"]
        if self.quick:
            said = [f"rank {self.rank} ran alone; the real numbers that it received were made up (`--data` or a rule "
                    "of `--inputs` says what they were), and of others the last:"]  # fmt: skip
        said += [f"  {one}" for one in self.last] or ["  nothing"]
        said += [f"  objects were its own, or None; {self._wanting} says what they are"] if self._wanting else []
        unused = [rule["rule"] for rule in self._uses() if not rule["times"] and not rule["optional"]]
        return "\n".join(said + [f"  {one} has fitted nothing so far" for one in unused])

    def _note_groups(self, c10d) -> None:
        make = c10d._new_process_group_helper
        signature = inspect.signature(make)

        @functools.wraps(make)
        def note_group(*args, **keywords):
            given = signature.bind(*args, **keywords).arguments
            made = make(*args, **keywords)
            self._note_group(given["group_name"], list(given["global_ranks_in_group"]))
            return made

        c10d._new_process_group_helper = note_group

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

    def _list(self, by: int, asked: Communication, site: str) -> None:
        dtype = "" if asked.dtype is None else str(asked.dtype).removeprefix("torch.")
        what = (by, asked.op, asked.reduce_op, asked.description, asked.size, asked.root, dtype, site)
        known = self.answered.setdefault(what, [0, set(), asked.group])
        known[0] += 1
        known[1].add(asked.shape or ())

    def _uses(self) -> list[dict]:
        kinds = (("rule", self.rules), ("setup", self.rules.setups), ("key", self.rules.keys))
        return [
            {"rule": str(one), "name": getattr(one, "name", str(one)), "optional": one.optional,
             "times": self.used[f"{kind} {number}"], "missed": one.missed() if kind == "setup" else ""}
            for kind, all_ in kinds for number, one in enumerate(all_)
        ]  # fmt: skip

    def write(self, path: str) -> None:
        """Who answered what, for the command line."""
        answered = [
            [list(what), times, sorted(shapes), group] for what, (times, shapes, group) in self.answered.items()
        ]
        told = {"rules": self._uses(), "answered": answered, "without_answer": self.without_answer}
        with open(path, "w") as file:
            json.dump(told | {"groups": self._groups}, file)


def _in_words(reason: BaseException) -> str:
    text = str(reason).partition("\n")[0]
    own = isinstance(reason, ValueError | TypeError) and text
    steps = [step for step in traceback.extract_tb(reason.__traceback__) if not step.filename.startswith(_HERE)]
    where = f" ({steps[-1].filename}:{steps[-1].lineno})" if steps else ""
    return (text if own else f"{type(reason).__name__}: {text}") + where
