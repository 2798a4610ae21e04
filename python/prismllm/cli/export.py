"""prism export: traces for other tools."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import Output, check_writable, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile


@click.command(
    "export",
    short_help="A trace in another format (Chrome's, for Perfetto)",
    epilog="Example: prism export --format chrome -o job.json job.prism  (open in ui.perfetto.dev)",
)
@click.argument("trace", type=TraceFile())
@click.option(
    "--format", "format_", type=click.Choice(["chrome"]), default="chrome", show_default=True, help="What to write."
)
@click.option("-o", "--output", "path", metavar="FILE", help="Where to  [default: TRACE with .json]")
@common_options
def command(output: Output, trace: str, format_: str, path: str | None) -> None:
    """Write TRACE in another format: one process per rank, one thread per lane, arrows for communication."""
    path = path or os.path.splitext(trace)[0] + ".json"
    check_writable(path, "-o", may_be_device=True)
    from prismllm.export.chrome import export_chrome
    from prismllm.trace import load

    with wrong_use(trace):
        loaded = load(trace, check=True)
    with replaying(trace):
        export_chrome(loaded, path)
    output.result({"written": path, "unknown": []})
    if not output.quiet:
        output.print(f"written: {path}\n")
