"""Commands of the form `prism COMMAND TRACE [OPTIONS] [PROGRAM [ARGS]...]`: all that follows the program's name is the
program's."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click

from prismllm.cli.fragments import TraceFile


class TraceFirst(click.Command):
    """TRACE may stand before the options, or behind all of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-"):
            args = ["--trace", *args]
        return super().parse_args(ctx, args)


class _TraceOption(click.Option):
    """TRACE to those who read an error: they have not written the option."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return "'TRACE'"


def trace_and_program(command: Callable) -> Callable:
    """Handed to the command as `base`, a path, and `words`, the program and its arguments or nothing."""

    @click.option("--trace", "base", type=TraceFile(), cls=_TraceOption, hidden=True)
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TRACE [OPTIONS] [PROGRAM [ARGS]...]")
    @functools.wraps(command)
    def with_trace(*args, base, words, **kwargs):
        words = list(words)
        if base is None:
            ctx = click.get_current_context()
            if not words:
                raise click.UsageError(f"the trace is missing; accepted: {ctx.command_path} TRACE [OPTIONS] [PROGRAM "
                                       "[ARGS]...]")  # fmt: skip
            if len(words) > 1 and words[1].startswith("-"):
                raise click.UsageError(f"'{words[1]}' stands behind TRACE and other options before it; accepted: all "
                                       "options behind TRACE, or all before it")  # fmt: skip
            base = TraceFile().convert(words.pop(0), next(p for p in ctx.command.params if p.name == "base"), ctx)
        return command(*args, base=base, words=words, **kwargs)

    return with_trace
