"""`prism capture --inputs`: ranks that run alone, and which rules answered them."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter

import click

from prismllm.launch import LaunchError, RunFolder
from prismllm.units import counted

_BUILTIN = "builtin"
_OURS = ("default", "objects like mine")  # prismllm.inputs.builtin, which imports torch


def check_solo(inputs: str | None, explain: bool, verify: int | None, data: str | None, hosts) -> None:
    """UsageError where the options do not go together."""
    if not inputs:
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


class Answers:
    """Who answered how many communications, over all ranks that ran."""

    def __init__(self, counts: Counter[tuple], unused: list[str], ranks: int):
        self.counts = counts  # (rule, op, group, group size, dtype, shape, call site) -> times
        self.unused = unused  # rules that should have been used
        self.ranks = ranks

    @classmethod
    def of_run(cls, folder: RunFolder, world_size: int) -> Answers:
        counts: Counter[tuple] = Counter()
        used: Counter[str] = Counter()
        ranks = 0
        for rank in range(world_size):
            if not os.path.exists(path := folder.rank_answers(rank)):
                continue
            ranks += 1
            with open(path) as file:
                answers = json.load(file)
            for rule, optional, times in answers["rules"]:
                used[rule] += times or optional
            for *what, shape, site, times in answers["answered"]:
                counts[(*what, tuple(shape), site)] += times
        return cls(counts, [rule for rule, times in used.items() if not times], ranks)

    def check(self) -> None:
        """LaunchError where a rule was not used: what it was to answer was answered otherwise."""
        if self.unused:
            raise LaunchError(
                f"--inputs: {self.unused[0]} fits nothing in the {counted(self.ranks, 'rank')} that ran; "
                "see what there is with --explain and --inputs builtin, or make it optional=True",
                2,
            )

    def by_rule(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for (rule, *_), times in self.counts.items():
            total[rule] += times
        return dict(sorted(total.items()))

    def provenance(self, inputs: str) -> dict:
        """For the trace: that what ranks received was made, by which rules, and where a default was used."""
        defaults: Counter[str] = Counter()
        for (rule, op, *_), times in self.counts.items():
            if rule in _OURS:
                defaults[op] += times
        kept = {"rules": inputs, "answered": self.by_rule(), "defaults": dict(sorted(defaults.items()))}
        if inputs != _BUILTIN:
            with open(inputs, "rb") as file:
                kept["rules_sha256"] = hashlib.sha256(file.read()).hexdigest()
        return {"inputs": kept}

    def summary(self, inputs: str) -> dict:
        columns = ("rule", "op", "group", "group_size", "dtype", "shape", "call_site")
        listed = [
            dict(zip(columns, what, strict=True)) | {"times": times}
            for what, times in sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        return {"rules": inputs, "ranks": self.ranks, "answered": self.by_rule(), "communications": listed}


def answers_rows(summary: dict) -> list[tuple[str, str]]:
    if not (inputs := summary.get("inputs")):
        return []
    answered = inputs["answered"]
    ours = sum(times for rule, times in answered.items() if rule in _OURS)
    total = sum(answered.values())
    split = f", {counted(len(inputs['split']), 'class')} split" if inputs["split"] else ""
    return [
        ("alone", f"{counted(inputs['ranks'], 'rank')} ran, {inputs['verified']} of them to verify{split}"),
        ("inputs", f"{counted(total, 'communication')} answered, {total - ours} by rules of {inputs['rules']}"),
    ]


def explained(summary: dict) -> list[tuple[str, str]]:
    rows = []
    for one in summary["inputs"]["communications"]:
        named = f"'{one['group']}'" if one["group"] else "a group"
        what = f"{one['op']} {one['dtype']} {list(one['shape'])} in {named} of {one['group_size']}"
        rows.append((one["rule"], f"{one['times']} x {what}, at {one['call_site']}"))
    return rows
