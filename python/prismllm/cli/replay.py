"""prism replay: the whole graph offline, with what-ifs."""

from __future__ import annotations

import dataclasses
import os

import click

from prismllm.cli.common import Output, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile
from prismllm.units import duration, size

_RANKS_SHOWN = 16


@click.command(
    "replay",
    short_help="A trace with all ranks virtual: times, waits, what-ifs",
    epilog="Example: prism replay job.prism --scenario slower-rank-3.toml",
)
@click.argument("trace", type=TraceFile())
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.toml",
    help="What-ifs: tables [[edit]] with rank, iteration, name or node (all optional) and scale, add_s.",
)
@common_options
def command(output: Output, trace: str, scenario: str | None) -> None:
    """Execute TRACE with all ranks virtual: time per iteration; how each rank spent it, and its peak of memory.

    Busy: computing and issuing communication; waiting: held up until the last peer had come; exposed: held up by the
    transfer from then on."""
    from prismllm.replay import replay

    with wrong_use(scenario or trace):
        edits = _edits(scenario) if scenario else []
        with replaying(trace):
            done = replay(trace, edits)
    output.result(done.to_json())
    rows = [(f"iteration {one.index}", duration(one.time_s)) for one in done.iterations]
    rows += [
        (
            f"rank {one.rank}",
            f"busy {duration(one.busy_s)}, exposed {duration(one.exposed_comm_s)}, "
            f"waiting {duration(one.waiting_s)}, peak {size(one.peak_memory_bytes)}",
        )
        for one in done.ranks[:_RANKS_SHOWN]
    ]
    if len(done.ranks) > _RANKS_SHOWN:
        rows.append(("", f"and {len(done.ranks) - _RANKS_SHOWN} more ranks: --json lists all"))
    rows.append(("critical path", duration(done.critical_path_s)))
    output.table(f"replayed {trace}", rows + [("note", note) for note in done.notes])


def _edits(path: str) -> list:
    """ValueError with the place and the accepted values for whatever is not an edit."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    from prismllm.replay import Edit, shown

    if not os.path.isfile(path):  # a pipe might never end
        raise ValueError("not a regular file")
    with open(path, "rb") as file:
        scenario = tomllib.load(file)
    accepted = [field.name for field in dataclasses.fields(Edit)]
    if unknown := sorted(scenario.keys() - {"edit"}):
        raise ValueError(f"'{unknown[0]}' is not known; accepted: tables [[edit]]")
    tables = scenario.get("edit", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"edit = {shown(tables)}; accepted: tables [[edit]]")
    edits = []
    for number, table in enumerate(tables):
        if unknown := sorted(table.keys() - set(accepted)):
            raise ValueError(
                f"edit {number}: {unknown[0]} = {shown(table[unknown[0]])}; accepted: {', '.join(accepted)}"
            )
        try:
            edits.append(Edit(**table))
        except ValueError as reason:
            raise ValueError(f"edit {number}: {reason}") from None
        if not table.keys() & {"scale", "add_s"}:
            raise ValueError(f"edit {number} changes nothing: give it scale or add_s")
    return edits
