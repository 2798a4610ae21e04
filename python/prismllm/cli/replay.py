"""prism replay: the whole graph offline, with what-ifs."""

from __future__ import annotations

import click

from prismllm.cli.common import Output, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile
from prismllm.units import duration, size

_RANKS_SHOWN, _LINKS_SHOWN, _LATE_SHOWN = 16, 8, 3
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
    help="What-ifs: tables [[edit]], [[communication]], [[overlap]], [[link]], [links]; see docs/what_if.md.",
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
    transfer from then on; bubble: idle because of other stages of its pipeline. Late: who came last to the collectives
    for which others waited longest. With --comm also: the busiest links."""
    from prismllm.replay import Scenario, load_scenario, replay

    if not comm and (network or algorithms):
        raise click.UsageError(f"{'--network' if network else '--algorithm'} is of a --comm cluster")
    options = network_options(comm, network or "flow", algorithms) if comm else None
    with wrong_use(scenario or trace):
        changes = load_scenario(scenario) if scenario else Scenario()
        with replaying(trace):
            done = replay(trace, network=options, scenario=changes)
    output.result(done.to_json())
    rows = [(f"iteration {one.index}", duration(one.time_s)) for one in done.iterations]
    rows += [
        (
            f"rank {one.rank}",
            f"busy {duration(one.busy_s)}, exposed {duration(one.exposed_comm_s)}, "
            f"waiting {duration(one.waiting_s)}"
            + (f", bubble {duration(one.bubble_s)}" if one.bubble_s else "")
            + f", peak {size(one.peak_memory_bytes)}",
        )
        for one in done.ranks[:_RANKS_SHOWN]
    ]
    if len(done.ranks) > _RANKS_SHOWN:
        rows.append(("", f"and {len(done.ranks) - _RANKS_SHOWN} more ranks: --json lists all"))
    rows.append(("critical path", duration(done.critical_path_s)))
    rows += [
        ("late", f"rank {one.late_rank} to {one.what}, by {duration(one.late_by_s)}: others waited "
                 f"{duration(one.waited_s)} in all")
        for one in done.late(_LATE_SHOWN)[0]
    ]  # fmt: skip
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
