"""The command `prism`. Each command is a file of its own, imported when it is called: nothing here imports torch, and
`prism --help` answers at once."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import os
import signal
import sys
import tempfile
import traceback

import click

# Whose message alone does not show what is right.
_INCOMPLETE = (click.MissingParameter, click.NoSuchOption)
_COMMANDS = (
    "record",
    "capture",
    "time",
    "calibrate",
    "emulate",
    "health",
    "agent",
    "bench-comm",
    "validate",
    "replay",
    "simulate",
    "info",
    "diff",
    "export",
    "report",
    "doctor",
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = name.replace("-", "_")
        return importlib.import_module(f"prismllm.cli.{module}").command if name in _COMMANDS else None

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _COMMANDS, 1)
            guess = f"; did you mean '{near[0]}'?" if near else f"; commands: {', '.join(_COMMANDS)}"
            raise click.UsageError(f"there is no command '{args[0]}'{guess}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
             epilog="Example: prism capture -n 16 --slots 2 -o job.prism train.py --steps 3")  # fmt: skip
@click.version_option(package_name="prismllm", prog_name="prism")
def prism() -> None:
    """Emulate large-scale LLM training on a few devices."""


def main(args: list[str] | None = None) -> None:
    """Runs `prism` and leaves with its exit code: 0 done, 1 the answer is "no", 2 wrong use, 3 the program failed,
    4 PrismLLM failed, 130 interrupted."""
    code, told = 4, False
    _prepare_process()
    try:
        code = prism.main(args, prog_name="prism", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        print(help_wanted.ctx.get_help())
        code = 2
    except click.UsageError as wrong:
        command = wrong.ctx.command_path if wrong.ctx else "prism"
        text = wrong.format_message()
        _complain(f"{command}: {text}" + (f" Try '{command} --help'." if isinstance(wrong, _INCOMPLETE) else ""))
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except SystemExit as leave:
        code = leave.code
    except Exception as failure:
        from prismllm.cli.common import CommandError

        if isinstance(failure, CommandError):
            code, told = failure.exit_code, True
            _complain(f"prism: {failure}")
        elif isinstance(failure, BrokenPipeError):  # a reader that has gone away is no error
            code = 0
        elif isinstance(failure, OSError):
            where = f"'{failure.filename}': " if failure.filename else ""
            _complain(f"prism: {where}{failure.strerror or failure}")
        else:
            where = "no room for it"
            with (
                contextlib.suppress(OSError),
                tempfile.NamedTemporaryFile(
                    "w", errors="backslashreplace", prefix="prism-error-", suffix=".txt", delete=False
                ) as log,
            ):
                traceback.print_exc(file=log)
                where = log.name
            _complain(f"prism: internal error: {type(failure).__name__}: {failure} (traceback: {where})")
    from prismllm.launch.logs import deliver

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if code == 128 + number and not told:
            _complain(f"prism: ended by {signal.Signals(number).name}")
        signal.signal(number, signal.SIG_IGN)  # what it was asked to do is done
    deliver(sys.stdout, "")  # what is left in its buffer must not fail when the interpreter ends
    sys.exit(code)


def _prepare_process() -> None:
    """Whatever the process was started with: standard streams that exist and take any text, and unwinding (files that
    are half written go) at SIGTERM and when the terminal closes."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))  # noqa: SIM115
        stream = getattr(sys, name)
        if fd > 0 and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _complain(text: str) -> None:
    from prismllm.launch.logs import deliver

    deliver(sys.stderr, text + "\n")
