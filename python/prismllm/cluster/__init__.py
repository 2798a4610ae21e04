"""Clusters: which devices there are, in which nodes, and the links between them (docs/clusters.md).

    cluster = prismllm.cluster.load("pod.toml")     # or a topology file of SimAI, "pod.topo"
    cluster.device_of(0).bf16_flops
    cluster.graph()                                 # NumPy arrays of links, for a simulator of networks

A file that cannot be used raises ClusterError, whose one line says where, the value, and what is accepted."""

from __future__ import annotations

import os

from prismllm.cluster.cluster import Cluster
from prismllm.cluster.errors import ClusterError
from prismllm.cluster.graph import ClusterGraph
from prismllm.cluster.library import DeviceType, LinkType, devices, link_types
from prismllm.cluster.read import read_toml, text_of
from prismllm.cluster.topology import read_topology

__all__ = [
    "Cluster",
    "ClusterError",
    "ClusterGraph",
    "DeviceType",
    "LinkType",
    "devices",
    "import_topology",
    "link_types",
    "load",
    "loads",
]


def load(path: str | os.PathLike) -> Cluster:
    """A cluster file, or where the name ends in .topo, a topology file. OSError where there is no such file."""
    if os.fspath(path).endswith(".topo"):
        return import_topology(path)
    return read_toml(text_of(path), os.fspath(path))


def loads(text: str, name: str = "<text>") -> Cluster:
    """The text of a cluster file; `name` stands in errors."""
    return read_toml(text, name)


def import_topology(path: str | os.PathLike) -> Cluster:
    """A topology file of SimAI or of HPCC's ns-3 code, whatever its name; what is accepted stands in topology.py."""
    return read_topology(text_of(path), os.fspath(path))
