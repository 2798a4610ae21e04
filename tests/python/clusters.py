"""Cluster files made from parts, and questions that tests ask their graphs."""

import numpy as np

from prismllm import cluster

NIC = 'nic = { bandwidth = "100 Gb/s", delay = "1 us" }'
UPLINK = 'uplink = { delay = "1 us" }'


def nodes(count=2, devices=1, nic=NIC, more=""):
    return f'[[node]]\ncount = {count}\ndevice = "A100-40GB"\ndevices = {devices}\n{nic}\n{more}\n'


def made(*parts):
    return cluster.loads("\n".join(('name = "made"', *parts)), "made.toml")


def graph(*parts):
    return made(*parts).graph()


def named(graph, pattern):
    """Vertices whose names contain the text."""
    return [vertex for vertex, name in enumerate(graph.vertex_name) if pattern in name]


def link(graph, one, other):
    """The link from a vertex to another, by their names, and no second one."""
    (found,) = [
        index for index, name in enumerate(graph.link_name) if name.split(" #")[0] == f"{one} -> {other}"
    ]  # fmt: skip
    return found


def network(graph):
    """For networkx, with capacities in bytes per second; parallel cables are joined."""
    import networkx

    made = networkx.DiGraph()
    made.add_nodes_from(range(graph.vertices))
    ends = zip(graph.link_from.tolist(), graph.link_to.tolist(), strict=True)
    for (one, other), rate, delay in zip(ends, graph.bytes_per_second, graph.latency_ps.tolist(), strict=True):
        before = made.edges[one, other]["capacity"] if made.has_edge(one, other) else 0
        made.add_edge(one, other, capacity=before + rate, cost=10**15 + delay)
    return made


def flow(graph, sources, sinks):
    """The most that these vertices together can send to those, bytes per second."""
    import networkx

    net = network(graph)
    net.add_edges_from(("source", vertex) for vertex in sources)
    net.add_edges_from((vertex, "sink") for vertex in sinks)
    return networkx.maximum_flow_value(net, "source", "sink")


def route(graph, one, other, outside=False):
    """Names along the way of fewest links, and of these of least delay, that enters no other device, or nothing inside
    nodes."""
    import networkx

    net = network(graph)
    shut = np.flatnonzero(graph.vertex_host >= 0) if outside else np.arange(graph.devices)
    net.remove_nodes_from(set(shut.tolist()) - {one, other})
    return [graph.vertex_name[vertex] for vertex in networkx.shortest_path(net, one, other, weight="cost")]


def load_at(graph, vertices, towards):
    """For each vertex the bandwidth of its links to these others, bytes per second."""
    at = np.isin(graph.link_to, towards)
    total = np.bincount(graph.link_from[at], graph.bytes_per_second[at], graph.vertices)
    return total[vertices]
