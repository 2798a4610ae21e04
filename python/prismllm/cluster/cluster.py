"""A cluster that can be asked for its graph."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from prismllm.cluster.fabrics import build_fabric, ceil_div
from prismllm.cluster.graph import Builder, ClusterGraph
from prismllm.cluster.library import DeviceType
from prismllm.cluster.model import FatTree, Mesh, NodeKind, Processors, Rail, Site, SiteLink
from prismllm.cluster.nodes import Ports, build_nodes, part, users_nic


@dataclass(frozen=True, eq=False)
class Cluster:
    """`rank_device`: int32[ranks], the device of each rank, counted over all nodes in order. `sites` and `site_links`
    are empty for an imported topology, whose devices are all of the type `imported_device` (None: not said)."""

    name: str
    rank_device: np.ndarray
    sites: tuple[Site, ...] = ()
    site_links: tuple[SiteLink, ...] = ()
    imported: ClusterGraph | None = None
    imported_device: DeviceType | None = None
    processors: Processors | None = None  # None: each node has its own

    @property
    def ranks(self) -> int:
        return len(self.rank_device)

    @property
    def kinds(self) -> tuple[NodeKind, ...]:
        """Of all sites, in the order of their nodes."""
        return tuple(kind for site in self.sites for kind in site.kinds)

    @property
    def devices(self) -> int:
        return self.imported.devices if self.imported else sum(kind.count * kind.devices for kind in self.kinds)

    def device_of(self, rank: int) -> DeviceType | None:
        """Of a rank from 0; IndexError where there is none."""
        device = self.rank_device[range(self.ranks)[rank]]
        if self.imported:
            return self.imported_device
        ends = np.cumsum([kind.count * kind.devices for kind in self.kinds])
        return self.kinds[bisect_right(ends, device)].device

    def graph(self) -> ClusterGraph:
        """What a simulator takes: built anew at each call, always with the same numbers."""
        return self.imported or _built(self)


def cables(site: Site) -> int:
    """How many cables it takes, without building them; where kinds have unlike NICs, at least so many."""
    count, fabric, nodes = 0, site.fabric, site.nodes
    for kind in site.kinds:
        pcie, many = kind.pcie, kind.devices
        meshed = many * (many - 1) // 2
        inside = {"nvswitch": many if many > 1 else 0, "nvlink_mesh": meshed, "pcie": 0}[kind.scale_up]
        inside += many + pcie.switches + pcie.roots * (pcie.roots - 1) // 2
        nics = kind.nics.count if kind.nics else 0
        to_fabric = nics if fabric and not isinstance(fabric, Mesh) else 0
        count += kind.count * (inside + nics + to_fabric)
    if isinstance(fabric, Mesh):
        count += site.rails * nodes * (nodes - 1) // 2
    elif isinstance(fabric, FatTree):
        tors = ceil_div(nodes, fabric.nodes_per_tor)
        pods = ceil_div(tors, fabric.tors_per_pod)
        count += tors * fabric.aggregations * fabric.uplink_cables + pods * fabric.cores * fabric.core_cables
    elif isinstance(fabric, Rail):
        groups = ceil_div(nodes, fabric.nodes_per_group)
        count += groups * site.rails * fabric.spines * fabric.uplink_cables
    return count


def _built(cluster: Cluster) -> ClusterGraph:
    builder = Builder()
    kinds = cluster.kinds
    nodes = np.array([kind.count for kind in kinds])
    first_nodes = np.cumsum(nodes) - nodes
    devices, hosts = [], []
    for kind, first in zip(kinds, first_nodes.tolist(), strict=True):
        of_device = np.repeat(np.arange(first, first + kind.count), kind.devices)
        made = builder.vertices(part("gpu", first, kind.devices), len(of_device), of_device)
        devices.append(made.reshape(kind.count, kind.devices))
        hosts.append(of_device)

    nics, used = [], []
    for kind, first, own in zip(kinds, first_nodes.tolist(), devices, strict=True):
        made = build_nodes(builder, kind, first, own)
        nics.append(made)
        used.append(made[:, users_nic(kind)] if kind.nics else np.full_like(own, -1))

    tops, number = [], 0
    for site in cluster.sites:
        ports, in_site = [], 0
        for kind in site.kinds:
            if kind.nics:
                ports.append(Ports(nics[number], np.arange(in_site, in_site + kind.count), kind.nics.link))
            in_site, number = in_site + kind.count, number + 1
        tops.append(build_fabric(builder, site, ports) if site.fabric else None)
    for long in cluster.site_links:
        turn = np.arange(long.cables)
        ends = [tops[site][turn % len(tops[site])] for site in (long.first, long.second)]
        _long_cables(builder, ends, long)

    rank = cluster.rank_device
    placed = {"endpoint": rank, "nic": np.concatenate([one.ravel() for one in used])[rank],
              "host": np.concatenate(hosts)[rank]}  # fmt: skip
    host_message_ps = np.repeat([kind.host_message_ps for kind in kinds], nodes)
    return builder.finish(cluster.devices, placed, host_message_ps, cluster.processors)


def _long_cables(builder: Builder, ends: list[np.ndarray], long: SiteLink) -> None:
    """Cables in turn over the switches of both sites; those that meet the same two are parallel."""
    pairs, counts = np.unique(np.stack(ends), axis=1, return_counts=True)
    for one, other, count in zip(*pairs, counts.tolist(), strict=True):
        builder.cables((np.array([one]), np.array([other])), long.link, parallel=count)
