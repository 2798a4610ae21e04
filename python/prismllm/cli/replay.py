"""prism replay: the whole graph offline, with what-ifs."""

from __future__ import annotations

import dataclasses
import os

import click

from prismllm.cli.common import Output, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile
from prismllm.units import duration, size

_RANKS_SHOWN, _LINKS_SHOWN = 16, 8
NETWORKS = ("closed", "flow", "nic", "ns3")  # prismllm.simulate, which loads a native module


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
@click.option("--comm", type=click.Path(exists=True, dir_okay=False), metavar="CLUSTER.toml",
              help="Communication takes what it takes on this cluster's network, rank i on its device i.")  # fmt: skip
@click.option("--network", type=click.Choice(NETWORKS),
              help="flow: links are shared; nic: a message at a time; closed: each alone; ns3: packets"
                   "  [default: flow]")  # fmt: skip
@click.option("--algorithm", "algorithms", multiple=True, metavar="OP=NAME",
              help="For example all_reduce=tree; names as in `prism simulate collective`. Repeatable.")  # fmt: skip
@common_options
def command(output: Output, trace: str, scenario: str | None, comm: str | None, network: str | None,
            algorithms: tuple[str, ...]) -> None:  # fmt: skip
    """Execute TRACE with all ranks virtual: time per iteration; how each rank spent it, and its peak of memory.

    Busy: computing and issuing communication; waiting: held up until the last peer had come; exposed: held up by the
    transfer from then on. With --comm also: the busiest links."""
    from prismllm.replay import replay

    if not comm and (network or algorithms):
        raise click.UsageError(f"{'--network' if network else '--algorithm'} is of a --comm cluster")
    options = network_options(comm, network or "flow", algorithms) if comm else None
    with wrong_use(scenario or trace):
        edits = _edits(scenario) if scenario else []
        with replaying(trace):
            done = replay(trace, edits, network=options)
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
    if done.network:
        rows += [
            ("link", f"{link.name}: {size(link.bytes)}, busy {duration(link.busy_s)}, used {link.utilisation:.1%}")
            for link in done.network.links[:_LINKS_SHOWN]
        ]
        if len(done.network.links) > _LINKS_SHOWN:
            rows.append(("", f"and {len(done.network.links) - _LINKS_SHOWN} more links: --json lists all"))
    output.table(f"replayed {trace}", rows + [("note", note) for note in done.notes])


def network_options(path: str, network: str, algorithms: tuple[str, ...]):
    from prismllm.cluster import load
    from prismllm.replay import NetworkOptions

    by_operation = {}
    for text in algorithms:
        operation, equals, name = text.partition("=")
        if not (operation and equals and name):
            raise click.UsageError(f"--algorithm: '{text}'; accepted: OP=NAME, for example all_reduce=tree")
        by_operation[operation] = name
    with wrong_use(path):
        options = NetworkOptions(load(path), network, by_operation)
        options.native()  # refuses what is no network and no operation
    return options


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
