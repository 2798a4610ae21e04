"""What `prism time` runs and on what: the program, rules and network that a trace tells of. Its metadata are a file's
and may say anything."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import wrong_use
from prismllm.cli.time_written import words_of
from prismllm.launch import Program

_RECORDED = """from prismllm import inputs

inputs.rule("recorded", optional=True).peers(inputs.recorded({folder!r}))
"""


def recorded_rules(folder: str, data: str) -> str:
    """A file of rules: the peers send what they sent in a run that a user has recorded."""
    path = os.path.join(folder, "recorded.py")
    with open(path, "w") as file:
        file.write(_RECORDED.format(folder=os.path.abspath(data)))
    return path


def network_of(onto: str | None, comm: str | None):
    """That of a calibrated trace; None where transfers have times of their own."""
    from prismllm.cli.replay import network_options
    from prismllm.trace import load

    calibrated = load(onto).metadata.get("calibrated", {}) if onto else {}
    name = calibrated.get("comm", "") if isinstance(calibrated, dict) else ""
    file, comma, kind = str(name).rpartition(", ")
    if not comma:  # "recorded", "closed form", or not calibrated
        if comm:
            raise click.UsageError("--comm is for a trace of --onto that was calibrated on a network")
        return None
    if not comm:
        raise click.UsageError(f"--onto: {onto} was calibrated on {name}; give that file with --comm")
    if os.path.basename(comm) != file:
        raise click.UsageError(f"--comm {comm}: {onto} was calibrated on {file}")
    return network_options(comm, kind, ())


def program_of(metadata: dict, words: list[str], module: bool) -> Program:
    if not words:
        words, module = recorded_program(metadata.get("program"))
    if not words:
        raise click.UsageError("the trace does not say which program it is of; name it: prism time TRACE PROGRAM ...")
    chosen = Program(words[0], module, words[1:])
    try:
        chosen.check()
    except ValueError as reason:
        raise click.UsageError(str(reason)) from None
    return chosen


def recorded_program(words) -> tuple[list[str], bool]:
    """(name and arguments, whether it is a module). Under torchrun the record has the interpreter and its options."""
    if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        return [], False
    if os.path.basename(words[0]).startswith("python"):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return (words[1:], True) if words[:1] == ["-m"] else (words, False)


def rules_of(metadata: dict) -> str:
    """By which the trace was captured, where they are still there."""
    of = metadata.get("inputs")
    rules = of.get("rules") if isinstance(of, dict) else None
    return os.path.abspath(rules) if rules and isinstance(rules, str) and os.path.isfile(rules) else "builtin"


def times_before(graph, path: str):
    """The trace of --onto, found to be of the same structure before anything runs."""
    from prismllm.trace import diff, load

    with wrong_use(path):
        before = load(path)
        equal, first = diff(graph, before)
    if not before.timed:
        raise click.UsageError(f"--onto: {path} has no times; accepted: a trace that prism time has written")
    if not equal:
        raise click.UsageError(f"--onto: {path} is of another structure: {words_of(first, graph)} there")
    return before
