"""The flat directed graph that a simulator of networks takes, and what builds it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from prismllm.cluster.model import Link, Processors


@dataclass(frozen=True, eq=False)
class ClusterGraph:
    """L directed links between `vertices` vertices.

    A duplex cable is two links that follow each other: the reverse of link l is l ^ 1. Vertices 0 to devices - 1 are
    the devices, node after node; all others are inside nodes or switches. Any two devices are joined by a route with no
    device in its middle (in an imported topology: if its file has one), so a router that enters no other device finds
    one for every pair. `vertex_host` tells which links are inside a node: those whose ends have the same host."""

    vertices: int
    devices: int
    link_from: np.ndarray  # int32[L]
    link_to: np.ndarray  # int32[L]
    bytes_per_second: np.ndarray  # float64[L], sustained, after efficiency
    latency_ps: np.ndarray  # int64[L]
    line_bytes_per_second: np.ndarray  # float64[L], until the burst is used up; equal to the above where there is none
    burst_bytes: np.ndarray  # int64[L], 0: none
    endpoint: np.ndarray  # int32[ranks], the vertex of a rank's device
    nic: np.ndarray  # int32[ranks], the NIC by which its traffic leaves the node; -1: it has no vertex of its own
    host: np.ndarray  # int32[ranks]
    host_message_ps: np.ndarray  # int64[hosts]
    processors: Processors | None  # that take the messages of all hosts, in place of host_message_ps
    vertex_host: np.ndarray  # int32[vertices], -1: a switch outside nodes
    vertex_name: Sequence[str]
    link_name: Sequence[str]

    @property
    def links(self) -> int:
        return len(self.link_from)


class _Names(Sequence[str]):
    """Names that are made when asked for."""

    def __init__(self, count: int):
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):
        chosen = range(self._count)[index]
        return [self._name(one) for one in chosen] if isinstance(index, slice) else self._name(chosen)

    def _name(self, index: int) -> str:
        raise NotImplementedError


class VertexNames(_Names):
    """From blocks of vertices that are named alike."""

    def __init__(self, firsts: list[int], names: list[Callable[[int], str]], count: int):
        super().__init__(count)
        self._firsts, self._names = firsts, names

    def _name(self, index: int) -> str:
        block = bisect_right(self._firsts, index) - 1
        return self._names[block](index - self._firsts[block])


class LinkNames(_Names):
    """ "node3.gpu2 -> node3.nvswitch"; of parallel cables each has its number, "tor0 -> aggregation1 #2"."""

    def __init__(self, vertex_name: Sequence[str], link_from: np.ndarray, link_to: np.ndarray, cable: np.ndarray):
        super().__init__(len(link_from))
        self._vertex_name, self._from, self._to, self._cable = vertex_name, link_from, link_to, cable

    def _name(self, index: int) -> str:
        ends = f"{self._vertex_name[int(self._from[index])]} -> {self._vertex_name[int(self._to[index])]}"
        cable = self._cable[index]
        return f"{ends} #{cable}" if cable else ends


class Builder:
    """Vertices in blocks, cables in columns; the order of the calls is that of the numbers."""

    def __init__(self):
        self.count = 0
        self._firsts: list[int] = []
        self._names: list[Callable[[int], str]] = []
        self._hosts: list[np.ndarray] = []
        self._cables: list[tuple[np.ndarray, ...]] = []

    def vertices(self, name: Callable[[int], str], count: int, host: np.ndarray | int = -1) -> np.ndarray:
        """`name(i)` of the i-th of these, `host` of each or of all; their numbers."""
        if count:
            self._firsts.append(self.count)
            self._names.append(name)
            self._hosts.append(np.broadcast_to(np.asarray(host, np.int32), count))
        self.count += count
        return np.arange(self.count - count, self.count, dtype=np.int32)

    def cables(self, ends: tuple[np.ndarray, np.ndarray], link: Link, bandwidth=None, parallel: int = 1) -> None:
        """Between ends[0] and ends[1], `parallel` between each two; `bandwidth` of each, where it is not the link's."""
        one, other = (end.ravel() for end in np.broadcast_arrays(*ends))
        sustained = np.broadcast_to(np.asarray(link.bytes_per_second if bandwidth is None else bandwidth), one.shape)
        line = np.broadcast_to(link.line_bytes_per_second, one.shape) if link.burst_bytes else sustained
        number = np.arange(1, parallel + 1) if parallel > 1 else np.zeros(1)
        columns = (one, other, sustained * link.efficiency, line * link.efficiency)
        total = len(one) * parallel
        delay, burst = np.full(total, link.delay_ps), np.full(total, link.burst_bytes)
        self.add(*(np.repeat(column, parallel) for column in columns), delay, burst, np.tile(number, len(one)))

    def add(self, one, other, bytes_per_second, line_bytes_per_second, latency_ps, burst_bytes, number) -> None:
        """Cables in columns; `number` of each among those that are parallel, 0 for a single one."""
        columns = (one, other, bytes_per_second, line_bytes_per_second, latency_ps, burst_bytes, number)
        types = (np.int32, np.int32, float, float, np.int64, np.int64, np.int32)
        self._cables.append(tuple(np.asarray(c).astype(t) for c, t in zip(columns, types, strict=True)))

    def finish(self, devices: int, placed: dict[str, np.ndarray], host_message_ps: np.ndarray,
               processors: Processors | None = None) -> ClusterGraph:  # fmt: skip
        """`placed`: endpoint, nic and host of the ranks."""
        one, other, *columns = [np.concatenate(parts) for parts in zip(*self._cables, strict=True)]
        self._cables.clear()
        link_from, link_to = np.stack([one, other], axis=1).ravel(), np.stack([other, one], axis=1).ravel()
        bandwidth, line, delay, burst, cable = (np.repeat(column, 2) for column in columns)
        names = VertexNames(self._firsts, self._names, self.count)
        return ClusterGraph(
            vertices=self.count, devices=devices, link_from=link_from, link_to=link_to,
            bytes_per_second=bandwidth, latency_ps=delay, line_bytes_per_second=line, burst_bytes=burst,
            **{key: value.astype(np.int32) for key, value in placed.items()},
            host_message_ps=host_message_ps.astype(np.int64), processors=processors,
            vertex_host=np.concatenate(self._hosts), vertex_name=names,
            link_name=LinkNames(names, link_from, link_to, cable),
        )  # fmt: skip
