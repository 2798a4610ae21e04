"""What `capture` and `record` share: from their options to a finished trace."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable

import click

from prismllm.cli.common import CommandError, Output, check_writable, claim
from prismllm.launch import Company, LaunchError, LaunchOptions, LaunchResult, Program, RunFolder, launch


class RunFailed(CommandError):
    """A run that did not succeed."""

    def __init__(self, failure: LaunchError, logs: str, folder: str):
        super().__init__(f"{failure}\n(logs of all ranks: {logs})", failure.exit_code)
        self.failure, self._folder = failure, folder

    def forget(self) -> None:
        """What it has left to be looked at is not needed."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def program_options(command: Callable) -> Callable:
    """`[-m] PROGRAM [ARGS]...`, -n, --nproc-per-node, -o and --log-dir; the program arrives as one `program`."""

    @click.option("-n", "world_size", type=click.IntRange(1, 65536), metavar="N", help="Number of ranks  [required]")
    @click.option("--nproc-per-node", type=click.IntRange(1), metavar="K",
                  help="Ranks of one (emulated) node, for LOCAL_RANK  [default: all]")  # fmt: skip
    @click.option("-o", "--output", "trace", metavar="FILE", help="The trace to write  [default: PROGRAM.prism]")
    @click.option(
        "--log-dir", metavar="DIR", help="Write what each rank prints to files there instead of passing it on."
    )
    @click.option("-m", "--module", is_flag=True, help="The program is a module, as with python -m.")
    @click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGS]...")
    @functools.wraps(command)
    def with_program(*args, program, module, trace, world_size, nproc_per_node, **kwargs):
        if world_size is None:
            late = " before the program's name: what follows it is the program's" if "-n" in program else ""
            raise click.UsageError(f"the number of ranks is missing; give it as -n N{late}")
        chosen = Program(program[0], module, list(program[1:]))
        try:
            chosen.check()
        except ValueError as reason:
            raise click.UsageError(str(reason)) from None
        if nproc_per_node and world_size % nproc_per_node:
            raise click.UsageError(f"--nproc-per-node {nproc_per_node} does not divide the {world_size} ranks of -n")
        if not module:
            claim(chosen.name, "the program")
        trace = chosen.stem + ".prism" if trace is None else trace
        check_writable(trace, "-o")
        return command(*args, program=chosen, trace=trace, world_size=world_size,
                       ranks_per_node=nproc_per_node, **kwargs)  # fmt: skip

    return with_program


# For a @click.command: everything after the program's name is the program's.
PROGRAM_LAST = {"allow_interspersed_args": False}


def alone(options: LaunchOptions, folder: RunFolder):
    """A run on this host only."""
    return contextlib.nullcontext((options, Company()))


def run_program(output: Output, log_dir: str | None, trace: str, merge: Callable[[RunFolder, LaunchResult], dict],
                with_others: Callable = alone, **options) -> dict:  # fmt: skip
    """Runs the program under the launcher, then `merge` (which writes the trace) and returns what that returns. The run
    folder goes when all is well, and stays, named in the message, when something is not. `with_others`: a context that
    yields the options of this host's part, and the other hosts."""
    try:
        if log_dir:
            os.makedirs(log_dir, exist_ok=True)
            check_writable(os.path.join(log_dir, "rank0.out"), "--log-dir")
        # Programs may change their working directory.
        given = os.path.abspath(output.run_dir or tempfile.mkdtemp(prefix=f"prism-{options['route']}-"))
        folder = RunFolder(given)
        folder.create()
        logs = os.path.abspath(log_dir or folder.logs)
    except (OSError, ValueError) as reason:
        raise click.UsageError(f"the run's folder cannot be made: {reason}") from None
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}  # as torchrun sets it
    launch_options = LaunchOptions(run_dir=given, log_dir=logs, environment=environment, **options)
    try:
        with (
            with_others(launch_options, folder) as (launch_options, company),
            _progress(output, len(launch_options.ranks)) as on_event,
        ):
            result = launch(launch_options, on_event, log_dir is None, output.program_stream, company)
        output.say(f"zygote warm in {result.warm_s:.2f} s, preloaded {', '.join(result.preloaded) or 'nothing'}")
        summary = merge(folder, result)
    except LaunchError as failure:
        if failure.exit_code == 2 and not output.run_dir:  # wrong use: there is nothing to look at
            shutil.rmtree(given, ignore_errors=True)
            raise CommandError(str(failure), 2) from None
        raise RunFailed(failure, logs, "" if output.run_dir else given) from None
    except (KeyboardInterrupt, SystemExit) as ended:
        code = ended.code if isinstance(ended, SystemExit) else 130
        raise CommandError(f"ended by a signal (fragments and logs are kept in {given})", code) from None
    except Exception as failure:
        with contextlib.suppress(OSError), open(os.path.join(given, "error.txt"), "w") as log:
            traceback.print_exc(file=log)
        raise CommandError(f"{failure} (fragments and logs are kept in {given})", 4) from None
    finally:
        folder.release()
    if not output.run_dir:
        shutil.rmtree(given, ignore_errors=True)
    return summary


@contextlib.contextmanager
def _progress(output: Output, world_size: int):
    """A callback for the launcher's events; a progress bar on a terminal."""
    if output.quiet or not sys.stderr.isatty():
        yield lambda event: output.say(_in_words(event))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("importing torch", total=world_size)

        def on_event(event: dict) -> None:
            output.say(_in_words(event))
            if event["event"] == "warm":
                progress.update(task, description="ranks finished")
            elif event["event"] == "exit" and event["rank"] >= 0:
                progress.advance(task)

        yield on_event


def _in_words(event: dict) -> str:
    return ", ".join(f"{name} {value}" if name != "event" else str(value) for name, value in event.items())
