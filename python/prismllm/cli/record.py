"""prism record: N real processes on the real backend, recorded."""

from __future__ import annotations

import statistics

import click

from prismllm.cli.common import Output, common_options
from prismllm.cli.memory import memory_options, memory_rows, memory_summary
from prismllm.cli.run import PROGRAM_LAST, program_options, run_program
from prismllm.cli.testbed import on, testbed_options
from prismllm.launch import LaunchResult, Program, RunFolder
from prismllm.units import duration


@click.command(
    "record",
    short_help="N real processes on the real backend, recorded",
    context_settings=PROGRAM_LAST,
    epilog="Example: prism record -n 4 -o real.prism train.py --steps 5",
)
@program_options
@click.option("--backend", metavar="NAME", default="", help="Use this backend whatever the program asks for.")
@memory_options
@testbed_options
@common_options
def command(output: Output, program: Program, trace: str, world_size: int, ranks_per_node: int | None, backend: str,
            memory: dict, log_dir: str | None, bed: tuple[int, int] | None) -> None:  # fmt: skip
    """Run PROGRAM as N real processes on its own backend and write what it did and when.

    Under plain torchrun the same is had with PRISM_RECORD=DIR in the environment; `prism info DIR` and
    `prism export DIR` then read that folder as they read a trace."""

    def merge(folder: RunFolder, result: LaunchResult) -> dict:
        from prismllm.analysis import iteration_times
        from prismllm.cli.fragments import merge_run
        from prismllm.trace import Trace

        graph = merge_run(folder.fragments, trace, result.notes)
        times = iteration_times(Trace(graph))
        return {
            "ranks": world_size,
            "wall_s": result.wall_s,
            "iterations": [{"index": i, "time_s": int(ranks.max()) / 1e9} for i, ranks in enumerate(times)],
            "memory": memory_summary(graph.rank_class, result.memory, memory),
            "trace": trace,
            "notes": result.notes,
        }

    if bed and (world_size % bed[0] or ranks_per_node):
        raise click.UsageError(f"--hosts {bed[0]} holds {world_size} ranks; accepted: as many on each host, "
                               "which is then a node (without --nproc-per-node)")  # fmt: skip
    summary = run_program(output, log_dir, trace, merge, on(bed), route="real", world_size=world_size, program=program,
                          ranks_per_node=ranks_per_node or world_size, backend=backend, **memory)  # fmt: skip
    notes = summary.pop("notes")
    output.result(summary)
    times = [iteration["time_s"] for iteration in summary["iterations"]]
    shown = "none found (prismllm.iteration() in the program marks them)"
    if times:
        shown = f"{len(times)}, median {duration(statistics.median(times))}"
    output.table(
        f"recorded {program.name}",
        [("ranks", str(world_size)), ("time", duration(summary["wall_s"])), ("iterations", shown),
         *memory_rows(summary), ("trace", trace),
         *(("note", note) for note in notes)],
    )  # fmt: skip
