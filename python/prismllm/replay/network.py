"""A network for the communication of a replay, and what it was used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from prismllm import _replay
from prismllm.replay.what_if import LinkEdit, shown
from prismllm.simulate import NETWORKS, ranks_per_node, topology_of
from prismllm.simulate.packets import program_of

if TYPE_CHECKING:
    from prismllm._simulate import Topology
    from prismllm.cluster import Cluster


@dataclass(frozen=True)
class NetworkOptions:
    """`topology`: a cluster (prismllm.cluster.load) or a network of prismllm.simulate; rank i is its endpoint i, or
    placement[i]. `network`: "flow", messages share links max-min fairly, "nic", endpoints send and receive one after
    the other, "closed", each as if it were alone, or "ns3", packets.

    `algorithms`: by operation ("all_reduce" means all its variants), as prismllm.simulate.ALGORITHMS names them; others
    run by what is usual. `per_node`: consecutive ranks of a node, for "hierarchical"; None: the cluster's.

    `bins` > 0 keeps the bytes of each link over time, `flows` the times of each message. One network is for one thread
    at a time."""

    topology: Cluster | Topology
    network: str = "flow"
    algorithms: Mapping[str, str] = field(default_factory=dict)
    per_node: int | None = None
    placement: Sequence[int] | None = None
    bins: int = 0
    flows: bool = False
    link_edits: Sequence[LinkEdit] = ()  # of a cluster

    def __post_init__(self):
        if self.network not in NETWORKS:
            raise ValueError(f"network '{self.network}'; accepted: {', '.join(NETWORKS)}")

    @cached_property
    def _graph(self):
        return self.topology.graph() if hasattr(self.topology, "graph") else None

    @cached_property
    def links(self) -> Topology:
        if self._graph is None:
            return self.topology
        return topology_of(self.topology, **(self._edited_links() if self.link_edits else {}))

    def _edited_links(self) -> dict[str, np.ndarray]:
        graph, names = self._graph, np.asarray(self.link_names)
        rate, line = graph.bytes_per_second.astype(float), graph.line_bytes_per_second.astype(float)
        latency_ps = np.array(graph.latency_ps)
        for number, edit in enumerate(self.link_edits):
            chosen = np.fromiter(
                (name == edit.name or fnmatchcase(name, edit.name) for name in names), bool, len(names)
            )
            if not chosen.any():
                known = ", ".join(f"'{name}'" for name in names[:3])
                raise ValueError(f"link {number}: name = {shown(edit.name)}; accepted: patterns of the cluster's "
                                 f"{len(names)} links, as {known}")  # fmt: skip
            before = rate[chosen]
            rate[chosen] = edit.scale * (before if edit.bytes_per_second is None else edit.bytes_per_second)
            line[chosen] *= rate[chosen] / before
            if edit.latency_s is not None:
                latency_ps[chosen] = round(edit.latency_s * 1e12)
        return {"bytes_per_second": rate, "line_bytes_per_second": line, "latency_ps": latency_ps}

    @cached_property
    def link_names(self) -> list[str]:
        if self._graph is not None:
            return list(self._graph.link_name)
        vertices = {vertex: f"endpoint {i}" for i, vertex in enumerate(self.links.endpoint)}
        ends = zip(self.links.link_from, self.links.link_to, strict=True)
        return [" -> ".join(vertices.get(vertex, f"vertex {vertex}") for vertex in pair) for pair in ends]

    def native(self) -> _replay.NetworkOptions:
        per_node = self.per_node or (1 if self._graph is None else ranks_per_node(self._graph))
        return _replay.NetworkOptions(self.links, self.network, dict(self.algorithms), per_node,
                                      list(self.placement or []), self.bins, self.flows,
                                      program_of(self.network))  # fmt: skip


@dataclass(frozen=True)
class LinkUse:
    name: str
    link: int  # its number in the network
    bytes: int
    busy_s: float  # while anything passed
    utilisation: float  # bytes beside what the link sustains from the first start to the last end


@dataclass(frozen=True)
class NetworkUse:
    network: str
    links: list[LinkUse]  # that carried anything, the busiest first
    bin_s: float  # of bytes_over_time
    # With `flows`, one entry a message in the order in which they left: start_ps (ready to leave), end_ps (delivered),
    # bytes, source and destination (ranks), comm (the source's communication, by its number in the trace; -1: none).
    flows: dict[str, np.ndarray]
    options: NetworkOptions = field(repr=False)
    _use: _replay.NetworkUse = field(repr=False)

    @staticmethod
    def of(options: NetworkOptions, report: _replay.Report) -> NetworkUse:
        use, names, seconds = report.network, options.link_names, report.critical_path_ns / 1e9
        carried = use.link_bytes
        can = options.links.bytes_per_second * seconds
        share = np.divide(carried, can, out=np.zeros(len(carried)), where=can > 0)
        order = np.lexsort((np.arange(len(carried)), -share))  # equal ones by number
        busy = use.link_busy_ps / 1e12
        links = [LinkUse(names[i], int(i), int(carried[i]), float(busy[i]), float(share[i]))
                 for i in order if carried[i]]  # fmt: skip
        return NetworkUse(options.network, links, use.bin_ps / 1e12, use.flows() if options.flows else {}, options, use)

    def bytes_over_time(self, link: int) -> np.ndarray:
        """What the link carried in each bin of bin_s seconds, up to the last in which anything passed; with `bins`."""
        return self._use.link_bytes_by_bin(link)

    def route(self, source: int, destination: int) -> list[int]:
        """The links between two ranks: messages share what they have in common."""
        place = self.options.placement
        ends = (source, destination) if place is None else (place[source], place[destination])
        return self.options.links.route(*ends)

    def to_json(self) -> dict:
        return {"network": self.network, "links": [asdict(link) for link in self.links]}
