"""prism simulate: what a network would do that nobody has built."""

from __future__ import annotations

import dataclasses

import click

from prismllm.cli.common import Output, common_options, network_process, wrong_use
from prismllm.cli.memory_size import MemorySize
from prismllm.units import counted, duration, size

_NETWORKS = ("closed", "flow", "nic", "ns3")  # prismllm.simulate, which loads a native module


@click.group(
    "simulate",
    short_help="Collectives on a network that nobody has built",
    epilog="Example: prism simulate collective all_reduce --ranks 1024 --bytes 1M",
)
def command() -> None:
    """What would happen on a cluster that is not there."""


@command.command(
    "collective",
    short_help="How long one collective takes on a network",
    epilog="Example: prism simulate collective all_reduce --ranks 1024 --bytes 1M --bandwidth 50e9 --latency 1e-6",
)
@click.argument("op", metavar="OP")
@click.option("--ranks", type=click.IntRange(1), help="Members  [default: all devices of the cluster]")
@click.option("--bytes", "size_", type=MemorySize(), required=True, metavar="SIZE",
              help="The tensor; all that is gathered, scattered, or sent by one rank of an all_to_all.")  # fmt: skip
@click.option("--cluster", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="A cluster file (docs/clusters.md); without it all ranks are on one switch.")  # fmt: skip
@click.option("--bandwidth", type=float, metavar="B/S", help="Of each rank's link to the switch  [default: 50e9]")
@click.option("--latency", type=float, metavar="SECONDS", help="Of a message through the switch  [default: 1e-6]")
@click.option("--algorithm", metavar="NAME", default="",
              help="ring, segmented_ring, tree, halving_doubling, recursive_doubling, direct, pairwise, dissemination "
                   "or hierarchical"
                   "  [default: ring; direct for all_to_all, tree with a root]")  # fmt: skip
@click.option("--per-node", type=click.IntRange(1), help="Ranks of a node, for hierarchical  [default: the cluster's]")
@click.option("--root", type=click.IntRange(0), default=0, show_default=True)
@click.option("--network", type=click.Choice(_NETWORKS), default="flow", show_default=True,
              help="flow: links shared max-min fairly; nic: messages one by one; closed: each alone; "
                   "ns3: packets (`make ns3`).")  # fmt: skip
@common_options
def collective(output: Output, op: str, ranks: int | None, size_: int, cluster: str | None,
               bandwidth: float | None, latency: float | None, algorithm: str, per_node: int | None, root: int,
               network: str) -> None:  # fmt: skip
    """Simulate OP (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...) once, by all ranks at once."""
    from prismllm import simulate

    if cluster and (bandwidth is not None or latency is not None):
        raise click.UsageError("--cluster says what the links are; --bandwidth and --latency are of one switch")
    if not cluster and ranks is None:
        raise click.UsageError("--ranks is missing; accepted: the number of ranks, or a --cluster with devices")
    links = {} if cluster else {"bandwidth": 50e9 if bandwidth is None else bandwidth,
                                "latency_s": 1e-6 if latency is None else latency}  # fmt: skip
    topology = None
    with wrong_use(cluster or op), network_process():
        if cluster:
            from prismllm.cluster import load

            loaded = load(cluster)
            topology = simulate.topology_of(loaded)
            ranks = topology.endpoints if ranks is None else ranks
            per_node = per_node or simulate.ranks_per_node(loaded.graph())
        done = simulate.collective(op, ranks, size_, topology=topology, network=network, algorithm=algorithm, root=root,
                                   per_node=per_node or 1, **links)  # fmt: skip
    result = dataclasses.asdict(done)
    if network != "ns3":
        del result["packets"]
    output.result(result)
    output.table(
        f"{op} of {size(size_)} over {counted(ranks, 'rank')}",
        [
            ("time", duration(done.time_s)),
            ("bandwidth", f"{done.algorithm_bandwidth / 1e9:.4g} GB/s, bus {done.bus_bandwidth / 1e9:.4g} GB/s"),
            ("messages", f"{done.flows:,}"),
            *([("packets", f"{done.packets:,}")] if network == "ns3" else []),
            ("simulated", f"in {duration(done.wall_s)}, {done.events:,} events"),
        ],
    )
