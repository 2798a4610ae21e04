"""What all commands share: their common options, errors with an exit code, and where results go."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import click

from prismllm.export.atomic import is_device, replacing
from prismllm.launch.logs import deliver


class CommandError(Exception):
    """Ends the command with one message and this exit code."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def common_options(command: Callable) -> Callable:
    """--json, --quiet, --verbose and --run-dir, handed to the command as one Output."""

    @click.option("--json", "json_path", metavar="FILE", help="Write the results as JSON; - is standard output.")
    @click.option("--quiet", is_flag=True, help="No summary and no progress, only errors.")
    @click.option("--verbose", is_flag=True, help="Say what happens underway.")
    @click.option("--run-dir", metavar="DIR", help="Folder for logs and state  [default: temporary, kept on failure]")
    @functools.wraps(command)
    def with_output(*args, json_path, quiet, verbose, run_dir, **kwargs):
        if json_path and json_path != "-":
            check_writable(json_path, "--json", may_be_device=True)
        return command(*args, output=Output(json_path, quiet, verbose, run_dir), **kwargs)

    return with_output


def check_writable(path: str, option: str, may_be_device: bool = False) -> None:
    """Finds out before the work whether a result can be written at `path`; leaves nothing behind."""
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(21, "it is a folder")
        if is_device(path):
            if not may_be_device:
                raise OSError(22, "it is no regular file")
            return
        folder, name = os.path.split(os.path.realpath(path))
        with tempfile.NamedTemporaryFile(dir=folder, prefix=name + ".partial-"):  # as long as what the writer uses
            pass
    except (OSError, ValueError) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise click.UsageError(f"{option}: '{path}' cannot be written ({why})") from None
    if (other := claim(path, option)) is not None:
        raise click.UsageError(f"{option}: '{path}' cannot be written (it is {other} as well); give another name")


def claim(path: str, what: str) -> str | None:
    """Notes that this command uses the file at `path`; returns what else it is to it. A command's runs may follow each
    other."""
    known = click.get_current_context().meta.setdefault("prismllm.files", {})
    place = os.path.realpath(path)
    other = known.setdefault(place, what)
    return None if other == what else other


@dataclass
class Output:
    json_path: str | None
    quiet: bool
    verbose: bool
    run_dir: str | None

    @property
    def stream(self):
        """For people: standard output, unless that is promised to JSON."""
        return sys.stderr if self.json_path == "-" else sys.stdout

    @property
    def program_stream(self):
        """For what programs print, None: where it would go anyway."""
        return sys.stderr if self.json_path == "-" else None

    def console(self):
        from rich.console import Console

        # A file or pipe has no width: lines stay whole for whoever searches them.
        width = None if self.stream.isatty() else 200
        return Console(file=self.stream, highlight=False, markup=False, emoji=False, width=width)

    def say(self, text: str) -> None:
        if self.verbose:
            deliver(sys.stderr, text + "\n")

    def notice(self, text: str) -> None:
        """What people have to know at once."""
        if not self.quiet:
            deliver(sys.stderr, f"prism: {text}\n")

    def print(self, text: str, stream=None) -> None:
        """Text with its line ends; a reader that has gone away (`prism info x | head`) is no error."""
        reason = deliver(stream or self.stream, text)
        if reason and not isinstance(reason, BrokenPipeError):
            raise CommandError(f"the results cannot be printed: {reason.strerror}", 4)

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        """A summary in two columns."""
        if self.quiet:
            return
        from rich.table import Table

        table = Table(title=title, title_justify="left", box=None, show_header=False)
        for name, value in rows:
            table.add_row(name, value)
        console = self.console()
        with console.capture() as captured:
            console.print(table)
        self.print("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))

    def result(self, values: dict) -> None:
        """The JSON of the contract, when it is asked for."""
        if self.json_path == "-":
            self.print(json.dumps(values) + "\n", sys.stdout)
        elif self.json_path:
            with replacing(self.json_path) as write:
                write(json.dumps(values, indent=1) + "\n")


@contextlib.contextmanager
def wrong_use(what: str):
    """Errors about what the user has given (a corrupt or absent trace, say) end with one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as reason:
        told = str(reason)
        raise click.UsageError(told if told.startswith(f"{what}: ") else f"{what}: {told}") from None


@contextlib.contextmanager
def network_process():
    """Where the program of a network fails under way: what it said, and exit code 4."""
    try:
        yield
    except RuntimeError as reason:
        raise CommandError(str(reason), 4) from None


@contextlib.contextmanager
def replaying(trace: str):
    """Where a trace contradicts itself and its replay comes to no end: who waits for whom, and exit code 4; also where
    the program of a network fails."""
    try:
        yield
    except RuntimeError as reason:
        raise CommandError(f"{trace}: {reason}", 4) from None
