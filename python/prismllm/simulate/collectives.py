"""One collective alone on a network."""

from __future__ import annotations

import time
from dataclasses import dataclass

from prismllm import _simulate
from prismllm.simulate.networks import NETWORKS, one_switch
from prismllm.simulate.packets import program_of

ALGORITHMS = (
    "ring",
    "segmented_ring",
    "tree",
    "halving_doubling",
    "recursive_doubling",
    "direct",
    "pairwise",
    "dissemination",
    "hierarchical",
)
# Of what a member's link carries in a second, the share that is the tensor's: the "bus bandwidth" of nccl-tests.
_BUS_SHARE = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}


@dataclass(frozen=True)
class CollectiveTime:
    time_s: float  # until the last rank is done
    flows: int  # messages between ranks
    events: int  # times at which anything was simulated
    wall_s: float  # that the simulation took
    algorithm_bandwidth: float  # bytes per second: the tensor's size over the time
    bus_bandwidth: float  # the same times what each link has to carry of it, as nccl-tests print it
    packets: int = 0  # that links have carried, each counted on every link; of the network ns3


def collective(
    op: str,
    ranks: int,
    bytes: int,
    *,
    topology: _simulate.Topology | None = None,
    bandwidth: float = 50e9,
    latency_s: float = 1e-6,
    network: str = "flow",
    algorithm: str = "",
    root: int = 0,
    per_node: int = 1,
) -> CollectiveTime:
    """`op` as torch.distributed names it. `bytes`: the tensor of an all_reduce, broadcast or reduce; all that an
    all_gather or gather brings together, or a reduce_scatter or scatter spreads; what one rank of an all_to_all sends.
    Without a topology the ranks are on one switch, with `bandwidth` in bytes per second. `per_node`: consecutive ranks
    that share a node, for the hierarchical algorithm. ValueError for what cannot be; RuntimeError where the program of
    the network ns3 fails."""
    if network not in NETWORKS:
        raise ValueError(f"network '{network}'; accepted: {', '.join(NETWORKS)}")
    if topology is None:
        topology = one_switch(max(ranks, 1), bandwidth, latency_s)
    begin = time.perf_counter()
    found = _simulate.collective(topology, network, op, ranks, bytes, root, per_node, algorithm,
                                 program_of(network))  # fmt: skip
    seconds = found.time_ps / 1e12
    rate = bytes / seconds if seconds else 0.0
    share = next((of(ranks) for name, of in _BUS_SHARE.items() if op.startswith(name)), 1.0)
    wall_s, bus = time.perf_counter() - begin, rate * share if ranks > 1 else rate
    return CollectiveTime(seconds, found.messages, found.events, wall_s, rate, bus, found.packets)
