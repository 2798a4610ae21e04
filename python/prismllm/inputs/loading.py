"""The rules of a file, checked once, before the ranks are forked."""

from __future__ import annotations

import os
import runpy
import sys
import traceback

from prismllm.inputs.conditions import for_rank
from prismllm.inputs.rule import Rule, Rules, take_rules

BUILTIN = "builtin"  # in the place of a file: no rules but ours


class RulesError(Exception):
    """The rules file cannot be used; the text says why, in a line or with a traceback."""


def load(path: str, world_size: int) -> Rules:
    """In the order in which they stand. RulesError."""
    if path == BUILTIN:
        return Rules()
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    take_rules()
    pid = os.getpid()
    try:
        runpy.run_path(path, run_name="rules")
        rules = take_rules(world_size)
    except OSError as reason:
        if reason.filename != path:
            raise RulesError(_own_traceback(path)) from None
        raise RulesError(f"--inputs: '{path}': {reason.strerror}") from None
    except BaseException:
        raise RulesError(_own_traceback(path)) from None
    finally:
        if os.getpid() != pid:
            os._exit(0)  # a child that the file has forked is no second launcher
        sys.path.remove(folder)
    for rule in rules:
        if not any(for_rank(rule.conditions, rank) for rank in range(world_size)):
            raise RulesError(f"--inputs: {rule}: rank={rule.conditions['rank']!r:.60}; accepted: 0 to {world_size - 1}")
        if rule.answer is None:
            raise RulesError(f"--inputs: {rule} has no answer; give it one with .peers() or .result()")
        if rule.recorded is not None:
            try:
                rule.recorded.check_world(world_size)
            except ValueError as reason:
                raise RulesError(f"--inputs: {rule}: {reason}") from None
    return rules


def played(path: str, world_size: int, whole_numbers: bool) -> Rule:
    """For what peers sent in a run of this command itself. RulesError."""
    from prismllm.inputs.played import rule_of

    try:
        made = rule_of(path, whole_numbers)
        made.recorded.check_world(world_size)
    except (ValueError, OSError) as reason:
        raise RulesError(f"what the peers send was recorded, but cannot be read here: {reason}") from None
    return made


def _own_traceback(path: str) -> str:
    """Of the exception in handling, without what is ours and runpy's."""
    kind, value, trace = sys.exc_info()
    steps = traceback.extract_tb(trace)
    inside = [step for step in steps if not step.filename.startswith(("<frozen", os.path.dirname(__file__)))]
    lines = traceback.format_list(inside) + traceback.format_exception_only(kind, value)
    return f"--inputs: '{path}' does not load\n" + "".join(lines).rstrip()
