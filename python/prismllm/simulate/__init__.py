"""Collectives on networks that nobody has built yet: how long they take, over what, and by which algorithm.

    from prismllm import simulate

    simulate.collective("all_reduce", ranks=1024, bytes=1 << 20, bandwidth=50e9, latency_s=1e-6).time_s

docs/simulate.md says what the networks and algorithms are."""

from prismllm.simulate.collectives import ALGORITHMS, CollectiveTime, collective
from prismllm.simulate.networks import NETWORKS, one_switch, ranks_per_node, topology_of

__all__ = ["ALGORITHMS", "NETWORKS", "CollectiveTime", "collective", "one_switch", "ranks_per_node", "topology_of"]
