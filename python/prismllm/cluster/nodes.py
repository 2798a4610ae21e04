"""What is inside the nodes of one kind: scale-up network, PCIe tree, NICs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from prismllm.cluster.graph import Builder
from prismllm.cluster.model import Link, NodeKind


@dataclass(frozen=True, eq=False)
class Ports:
    """The NICs of one kind's nodes: vertices [nodes, NICs of a node], and the nodes' numbers in their site."""

    vertices: np.ndarray
    nodes: np.ndarray
    link: Link


def part(name: str, first_node: int, per_node: int, one: bool = False) -> Callable[[int], str]:
    """Names of vertices that every node has `per_node` of: node3.gpu2, or node3.nvswitch where it has one."""
    if one:
        return lambda index: f"node{first_node + index}.{name}"
    return lambda index: f"node{first_node + index // per_node}.{name}{index % per_node}"


def users_nic(kind: NodeKind) -> np.ndarray:
    """For each device of a node the first NIC that it is near."""
    first = {device: nic for nic, users in reversed(list(enumerate(kind.nics.users))) for device in users}
    return np.array([first[device] for device in range(kind.devices)])


def spread(count: int, over: int) -> np.ndarray:
    """`count` things over `over` places, evenly and in order."""
    return np.arange(count) * over // count


def build_nodes(builder: Builder, kind: NodeKind, first_node: int, devices: np.ndarray) -> np.ndarray:
    """`devices`: their vertices [nodes, devices of a node]. Returns those of the NICs, likewise."""
    nodes = kind.count

    def vertices(name: str, each: int, one: bool = False) -> np.ndarray:
        hosts = np.repeat(np.arange(first_node, first_node + nodes), each)
        made = builder.vertices(part(name, first_node, each, one), nodes * each, hosts)
        return made.reshape(nodes, each)

    if kind.devices > 1 and kind.scale_up == "nvswitch":
        builder.cables((devices, vertices("nvswitch", 1, one=True)), kind.scale_up_link)
    elif kind.scale_up == "nvlink_mesh":
        first, second = np.triu_indices(kind.devices, 1)
        builder.cables((devices[:, first], devices[:, second]), kind.scale_up_link)

    pcie = kind.pcie
    roots = vertices("root", pcie.roots, one=pcie.roots == 1)
    first, second = np.triu_indices(pcie.roots, 1)
    builder.cables((roots[:, first], roots[:, second]), pcie.root_link)
    if pcie.switches:
        switches = vertices("pcie", pcie.switches)
        root_of = spread(pcie.switches, pcie.roots)
        builder.cables((switches, roots[:, root_of]), pcie.uplink)
        place = spread(kind.devices, pcie.switches)
        above = switches
    else:
        place = spread(kind.devices, pcie.roots)
        above = roots
    builder.cables((devices, above[:, place]), pcie.link)
    if not kind.nics:
        return np.zeros((nodes, 0), np.int32)

    nics = vertices("nic", kind.nics.count)
    near = place[[users[0] for users in kind.nics.users]]
    if pcie.switches and not kind.nics.at_switch:
        above, near = roots, root_of[near]
    builder.cables((nics, above[:, near]), pcie.link)
    return nics
