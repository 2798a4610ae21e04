"""What joins the nodes of a site. Each function returns the site's topmost switches, to which long links go."""

from __future__ import annotations

import numpy as np

from prismllm.cluster.graph import Builder
from prismllm.cluster.model import FatTree, Mesh, Rail, Site, Switch
from prismllm.cluster.nodes import Ports


def build_fabric(builder: Builder, site: Site, ports: list[Ports]) -> np.ndarray:
    prefix = f"{site.name}." if site.name else ""
    build = {Switch: _switch, FatTree: _fat_tree, Rail: _rail, Mesh: _mesh}[type(site.fabric)]
    return build(builder, site, ports, prefix)


def ceil_div(count: int, by: int) -> int:
    return -(-count // by)


def _numbered(prefix: str, name: str):
    return lambda index: f"{prefix}{name}{index}"


def _below(ports: list[Ports], switch_of, switches: int) -> np.ndarray:
    """Bandwidth of the NICs' cables at each switch, bytes per second. `switch_of(ports)`: [nodes, NICs of a node]."""
    total = np.zeros(switches)
    for some in ports:
        at = np.broadcast_to(switch_of(some), some.vertices.shape).ravel()
        total += np.bincount(at, minlength=switches) * some.link.bytes_per_second
    return total


def _switch(builder: Builder, site: Site, ports: list[Ports], prefix: str) -> np.ndarray:
    switch = builder.vertices(lambda index: f"{prefix}switch", 1)
    for some in ports:
        builder.cables((some.vertices, switch), some.link)
    return switch


def _fat_tree(builder: Builder, site: Site, ports: list[Ports], prefix: str) -> np.ndarray:
    tree: FatTree = site.fabric
    tor_count = ceil_div(site.nodes, tree.nodes_per_tor)
    pods = ceil_div(tor_count, tree.tors_per_pod)
    tors = builder.vertices(_numbered(prefix, "tor"), tor_count)
    aggregations = builder.vertices(_numbered(prefix, "aggregation"), pods * tree.aggregations)
    cores = builder.vertices(_numbered(prefix, "core"), tree.cores)

    def tor_of(some: Ports) -> np.ndarray:
        return (some.nodes // tree.nodes_per_tor)[:, None]

    for some in ports:
        builder.cables((some.vertices, tors[tor_of(some)]), some.link)
    # Each switch divides what its oversubscription leaves of the bandwidth below it among its cables above.
    if tree.oversubscription:
        below = _below(ports, tor_of, tor_count)
        uplink = below / (tree.oversubscription * tree.aggregations * tree.uplink_cables)
    else:
        uplink = np.full(tor_count, tree.uplink.bytes_per_second)
    pod_of_tor = np.arange(tor_count) // tree.tors_per_pod
    of_pod = aggregations.reshape(pods, tree.aggregations)
    each = np.repeat(uplink, tree.aggregations)
    builder.cables((tors[:, None], of_pod[pod_of_tor]), tree.uplink, each, tree.uplink_cables)
    if not tree.cores:
        return aggregations

    per_aggregation = tree.cores // tree.aggregations
    if tree.core_oversubscription:
        below = np.repeat(np.bincount(pod_of_tor, uplink, pods), tree.aggregations) * tree.uplink_cables
        above = below / (tree.core_oversubscription * per_aggregation * tree.core_cables)
    else:
        above = np.full(len(aggregations), tree.core_link.bytes_per_second)
    group = cores.reshape(tree.aggregations, per_aggregation)[np.arange(len(aggregations)) % tree.aggregations]
    each = np.repeat(above, per_aggregation)
    builder.cables((aggregations[:, None], group), tree.core_link, each, tree.core_cables)
    return cores


def _rail(builder: Builder, site: Site, ports: list[Ports], prefix: str) -> np.ndarray:
    rail: Rail = site.fabric
    groups, rails = ceil_div(site.nodes, rail.nodes_per_group), site.rails

    def place(some: Ports) -> np.ndarray:
        return (some.nodes // rail.nodes_per_group)[:, None] * rails + np.arange(some.vertices.shape[1])

    # Where kinds have unlike numbers of NICs, a group may not need all of its rail switches.
    needed = np.unique(np.concatenate([place(some).ravel() for some in ports]))

    def name(index: int) -> str:
        group = f"group{needed[index] // rails}." if groups > 1 else ""
        return f"{prefix}{group}rail{needed[index] % rails}"

    switches = builder.vertices(name, len(needed))
    spines = builder.vertices(_numbered(prefix, "spine"), rail.spines)

    def switch_of(some: Ports) -> np.ndarray:
        return np.searchsorted(needed, place(some))

    for some in ports:
        builder.cables((some.vertices, switches[switch_of(some)]), some.link)
    if not rail.spines:
        return spines
    if rail.oversubscription:
        below = _below(ports, switch_of, len(switches))
        uplink = below / (rail.oversubscription * rail.spines * rail.uplink_cables)
    else:
        uplink = np.full(len(switches), rail.uplink.bytes_per_second)
    each = np.repeat(uplink, rail.spines)
    builder.cables((switches[:, None], spines[None, :]), rail.uplink, each, rail.uplink_cables)
    return spines


def _mesh(builder: Builder, site: Site, ports: list[Ports], prefix: str) -> np.ndarray:
    mesh: Mesh = site.fabric
    for nic in range(site.rails):
        of_nodes = np.concatenate([some.vertices[:, nic] for some in ports if some.vertices.shape[1] > nic])
        first, second = np.triu_indices(len(of_nodes), 1)
        builder.cables((of_nodes[first], of_nodes[second]), mesh.link)
    return np.zeros(0, np.int32)
