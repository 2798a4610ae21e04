"""prism report: one HTML file to look at."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import Output, check_writable, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile


@click.command(
    "report",
    short_help="A trace as one HTML file: timeline, waits, memory",
    epilog="Example: prism report job.prism -o report.html",
)
@click.argument("trace", type=TraceFile())
@click.option("-o", "--output", "path", metavar="FILE", help="Where to  [default: TRACE with .html]")
@click.option("--compare", type=TraceFile(), metavar="OTHER", help="A second trace, shown beside the first.")
@common_options
def command(output: Output, trace: str, path: str | None, compare: str | None) -> None:
    """Write TRACE as one HTML file that needs nothing else: timeline by rank, exposed communication, memory."""
    path = path or os.path.splitext(trace)[0] + ".html"
    check_writable(path, "-o", may_be_device=True)
    from prismllm.report import write_report
    from prismllm.trace import load

    traces = []
    for given in filter(None, (trace, compare)):
        with wrong_use(given):
            traces.append(load(given, check=True))
    with replaying(trace):
        write_report(traces[0], path, *traces[1:])
    output.result({"written": path})
    if not output.quiet:
        output.print(f"written: {path}\n")
