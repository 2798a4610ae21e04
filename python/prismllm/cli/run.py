"""What `capture` and `record` share: from their options to a finished trace."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable

import click

from prismllm.cli.common import Output, check_writable, claim
from prismllm.cli.run_folder import run_folder
from prismllm.launch import Company, LaunchOptions, LaunchResult, Program, RunFolder, launch


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
    """Runs the program under the launcher, then `merge` (which writes the trace) and returns what that returns.
    `with_others`: a context that yields the options of this host's part, and the other hosts."""
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}  # as torchrun sets it
    with run_folder(output, options["route"], log_dir) as (folder, logs):
        launch_options = LaunchOptions(run_dir=folder.path, log_dir=logs, environment=environment, **options)
        with (
            with_others(launch_options, folder) as (launch_options, company),
            _progress(output, len(launch_options.ranks), bar=not launch_options.terminal) as on_event,
        ):
            result = launch(launch_options, on_event, log_dir is None, output.program_stream, company)
        output.say(f"zygote warm in {result.warm_s:.2f} s, preloaded {', '.join(result.preloaded) or 'nothing'}")
        return merge(folder, result)


@contextlib.contextmanager
def _progress(output: Output, world_size: int, bar: bool):
    """A callback for the launcher's events; a progress bar on a terminal."""
    if not bar or output.quiet or not sys.stderr.isatty():
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
