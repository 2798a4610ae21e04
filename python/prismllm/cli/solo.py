"""`prism capture --inputs`: ranks that run alone, and which rules answered them."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field

import click

from prismllm.launch import LaunchError, RunFolder
from prismllm.units import counted

_BUILTIN = "builtin"
_OURS = {-1: "default", -2: "objects like mine"}  # prismllm.inputs.answering, which imports torch


def check_solo(inputs: str | None, explain: bool, verify: int | None, data: str | None, hosts) -> None:
    """UsageError where the options do not go together."""
    if inputs is None:
        if explain:
            raise click.UsageError("--explain tells of --inputs; give that as well")
        if verify is not None:
            raise click.UsageError("--verify compares ranks that run alone, with --inputs; give that as well")
        return
    if inputs != _BUILTIN and not os.path.isfile(inputs):
        raise click.UsageError(f"--inputs: there is no file '{inputs}'; accepted: a file of rules, or '{_BUILTIN}'")
    if data:
        raise click.UsageError("--data keeps what ranks send each other, and with --inputs they run alone")
    if hosts.agents:
        raise click.UsageError("--agents: ranks that run alone run on one host")


def rules_path(inputs: str | None) -> str:
    return "" if not inputs else inputs if inputs == _BUILTIN else os.path.abspath(inputs)


@dataclass
class Listed:
    """What many ranks received in one place of the program, by one rule."""

    rule: str
    op: str
    reduce_op: str
    group: str  # what the program calls it, or its key
    group_size: int
    root: int
    dtype: str
    call_site: str
    times: int = 0
    shapes: set[tuple[int, ...]] = field(default_factory=set)

    def what(self) -> str:
        """In a row of --explain."""
        reduced = f" {self.reduce_op}" if self.reduce_op != "none" else ""
        root = f" from {self.root}" if self.root >= 0 else ""
        return f"{self.op}{reduced}{root} {self.dtype} {_range(self.shapes)} in '{self.group}' of {self.group_size}"


class Answers:
    """Who answered how many communications, over all ranks that ran."""

    def __init__(self):
        self.ranks = 0
        self.rules: list[dict] = []  # as they stand: rule, name, optional, times, missed
        self.listed: dict[tuple, Listed] = {}
        self.without_answer = 0

    @classmethod
    def of_run(cls, folder: RunFolder, world_size: int) -> Answers:
        made = cls()
        for rank in range(world_size):
            if os.path.exists(path := folder.rank_answers(rank)):
                with open(path) as file:
                    made._add(json.load(file))
        return made

    def _add(self, told: dict) -> None:
        self.ranks += 1
        self.rules = self.rules or [rule | {"times": 0} for rule in told["rules"]]
        for known, rule in zip(self.rules, told["rules"], strict=True):
            known["times"] += rule["times"]
            known["missed"] = known["missed"] or rule["missed"]
        self.without_answer += told["without_answer"]
        for (by, op, reduce_op, description, size, root, dtype, site), times, shapes, group in told["answered"]:
            name = self.rules[by]["name"] if by >= 0 else _OURS[by]
            group = description or group
            key = (by, op, reduce_op, description, size, root, dtype, site)  # replicas' groups are one
            one = self.listed.setdefault(key, Listed(name, op, reduce_op, group, size, root, dtype, _near(site)))
            one.times += times
            one.shapes.update(tuple(shape) for shape in shapes)

    def check(self) -> None:
        """LaunchError where rules were not used: what they were to answer was answered otherwise."""
        unused = [rule for rule in self.rules if not rule["times"] and not rule["optional"]]
        if unused:
            names = "; ".join(f"{rule['rule']} fits nothing{rule['missed']}" for rule in unused)
            raise LaunchError(
                f"--inputs: {names}, in the {counted(self.ranks, 'rank')} that ran; see what there is with --explain "
                "and --inputs builtin, or make it optional=True",
                2,
            )

    def by_rule(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for (by, *_), one in self.listed.items():
            if by < 0:
                total[one.rule] += one.times
        for rule in self.rules:
            total[rule["name"]] += rule["times"]
        return dict(sorted(total.items()))

    def provenance(self, inputs: str) -> dict:
        """For the trace: that what ranks received was made, by which rules, and where a default was used."""
        defaults: Counter[str] = Counter()
        for (by, op, *_), one in self.listed.items():
            if by < 0:
                defaults[op] += one.times
        kept = {"rules": inputs, "answered": self.by_rule(), "defaults": dict(sorted(defaults.items()))}
        if inputs != _BUILTIN:
            with open(inputs, "rb") as file:
                kept["rules_sha256"] = hashlib.sha256(file.read()).hexdigest()
        return {"inputs": kept}

    def summary(self, inputs: str) -> dict:
        ordered = sorted(self.listed.values(), key=lambda one: (-one.times, one.rule, one.what(), one.call_site))
        by_default = sum(one.times for (by, *_), one in self.listed.items() if by < 0)
        return {
            "rules": inputs,
            "ranks": self.ranks,
            "answered": self.by_rule(),
            "by_default": by_default,
            "without_answer": self.without_answer,
            "communications": [vars(one) | {"shapes": sorted(one.shapes)} for one in ordered],
        }


def _range(shapes: set[tuple[int, ...]]) -> str:
    """One shape, or from which to which."""
    if len({len(shape) for shape in shapes}) > 1:
        return "of several shapes"
    sizes = [f"{min(at)}" if min(at) == max(at) else f"{min(at)}..{max(at)}" for at in zip(*shapes, strict=True)]
    return f"[{', '.join(sizes)}]"


def _near(site: str) -> str:
    """A call site with the file's name as seen from here."""
    file, colon, rest = site.partition(":")
    near = os.path.relpath(file) if os.path.isabs(file) else file
    return (near if len(near) < len(file) else file) + colon + rest


def answers_rows(summary: dict) -> list[tuple[str, str]]:
    if not (inputs := summary.get("inputs")):
        return []
    total = sum(one["times"] for one in inputs["communications"])
    split = f", {counted(len(inputs['split']), 'class')} split" if inputs["split"] else ""
    by_rules = f"{total - inputs['by_default']} by rules of {inputs['rules']}, {inputs['by_default']} by default"
    others = {name: times for name, times in inputs["answered"].items() if name.startswith("mock_router")}
    return [
        ("alone", f"{counted(inputs['ranks'], 'rank')} ran, {inputs['verified']} of them to verify{split}"),
        *([("", f"all, because of what did not fit together: {inputs['misfit']}")] if inputs["misfit"] else []),
        ("inputs", f"{counted(total, 'communication')} answered, {by_rules}"),
        *((name, counted(times, "call")) for name, times in others.items()),
        ("values", "invented: losses and gradients mean nothing"),
    ]


def explained(summary: dict) -> list[tuple[str, str]]:
    inputs = summary["inputs"]
    rows = []
    for one in inputs["communications"]:
        what = Listed(**{name: one[name] for name in vars(Listed("", "", "", "", 0, 0, "", "")) if name in one}).what()
        rows.append((one["rule"], f"{one['times']} x {what}, at {one['call_site']}"))
    if inputs["without_answer"]:
        rows.append(("", f"and {inputs['without_answer']} that bring nothing: sends, barriers, broadcasts of the root"))
    return rows
