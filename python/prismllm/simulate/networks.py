"""Networks for the simulator: from a cluster file, or of one switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prismllm import _simulate

if TYPE_CHECKING:
    from prismllm.cluster import Cluster, ClusterGraph

# closed: latency and size over the narrowest link, nothing shared. flow: links are shared max-min fairly. nic:
# endpoints send and receive one message after the other. ns3: packets, in a program of its own (packets.py).
NETWORKS = ("closed", "flow", "nic", "ns3")
_PICOSECONDS = 10**12


def one_switch(endpoints: int, bandwidth: float, latency_s: float) -> _simulate.Topology:
    """Every endpoint has a link of `bandwidth` bytes per second each way to one switch that does not block; a message
    takes `latency_s` through it. ValueError for what cannot be."""
    for what, value, low, high in (("bandwidth", bandwidth, 1e-3, 1e18), ("latency", latency_s, 0, 1)):
        if not low <= value <= high:
            raise ValueError(f"{what} {value:g}; accepted: {low:g} to {high:g}")
    if not 1 <= endpoints <= 1 << 24:
        raise ValueError(f"{endpoints} endpoints; accepted: 1 to {1 << 24}")
    return _simulate.Topology.one_switch(endpoints, float(bandwidth), round(latency_s * _PICOSECONDS))


def topology_of(cluster: Cluster, spread: str = "balanced", **others: np.ndarray) -> _simulate.Topology:
    """The network of a cluster. `spread`: which of several shortest ways a message takes: "balanced", the one that
    fewest use so far, as an adaptive network would; "destination", by its number (D-mod-k); "hash" of both ends (ECMP),
    with its collisions. `others`: columns of its graph in place of its own."""
    graph = cluster.graph()
    hosts = {"host": graph.host, "host_message_ps": graph.host_message_ps, "host_operation_ps": [],
             "host_bytes_per_second": [], "host_processors": []}  # fmt: skip
    if shared := graph.processors:
        copying = [shared.copy_bytes_per_second] if shared.copy_bytes_per_second else []
        hosts = {"host": np.zeros_like(graph.host), "host_message_ps": [shared.message_ps],
                 "host_operation_ps": [shared.operation_ps], "host_bytes_per_second": copying,
                 "host_processors": [shared.count]}  # fmt: skip
    columns = ("vertices", "link_from", "link_to", "bytes_per_second", "latency_ps", "line_bytes_per_second",
               "burst_bytes", "endpoint", "nic", "vertex_host")  # fmt: skip
    hosts["queue_bytes"] = shared.queue_bytes if shared else 0
    given = {name: getattr(graph, name) for name in columns} | hosts | others
    return _simulate.Topology(**given, spread=spread)


def ranks_per_node(graph: ClusterGraph) -> int:
    """Consecutive ranks that share a node, where all nodes have as many; else 1."""
    _, counts = np.unique(host := graph.host, return_counts=True)
    together = len(host) - np.count_nonzero(np.diff(host)) == len(host) - len(counts) + 1
    return int(counts[0]) if together and (counts == counts[0]).all() else 1
