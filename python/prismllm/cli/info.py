"""prism info: what is in a trace."""

from __future__ import annotations

import click

from prismllm.cli.common import Output, common_options, wrong_use
from prismllm.cli.fragments import TraceFile
from prismllm.units import counted, size


@click.command("info", short_help="What is in a trace", epilog="Example: prism info job.prism --json -")
@click.argument("trace", type=TraceFile())
@common_options
def command(output: Output, trace: str) -> None:
    """Say what is in TRACE: ranks, groups, classes, operations, bytes, iterations, peak memory.

    TRACE may also be the folder that PRISM_RECORD named under torchrun."""
    from prismllm.trace import info, load

    with wrong_use(trace):
        summary = info(load(trace))
    output.result(summary)
    state = "calibrated" if summary["calibrated"] else "timed" if summary["timed"] else "structure only"
    output.table(
        trace,
        [
            ("ranks", f"{summary['ranks']} in {counted(summary['classes'], 'class')}"),
            ("groups", str(summary["groups"])),
            ("nodes", f"{summary['nodes']:,}"),
            ("iterations", str(summary["iterations"])),
            ("times", state),
            ("peak memory", size(summary["peak_memory_bytes"])),
            *((op, f"{all_['count']:,}, {size(all_['bytes'])}") for op, all_ in summary["collectives"].items()),
        ],
    )
