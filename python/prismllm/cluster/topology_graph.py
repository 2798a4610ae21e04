"""The graph of a topology file."""

from __future__ import annotations

import numpy as np

from prismllm.cluster.graph import Builder, ClusterGraph


def build_topology(
    vertices: int, switches: list[np.ndarray], per_server: int, ends: np.ndarray, links: list[np.ndarray]
) -> ClusterGraph:
    """`switches`: numbers of the NVSwitches, and of the others; all other vertices are devices, `per_server` of them a
    host. `ends`: [cables, 2], numbers as in the file. `links`: bandwidth (bytes per second) and delay (ps) of each."""
    nvswitches, others = switches
    is_device = np.ones(vertices, bool)
    is_device[np.concatenate(switches)] = False
    ids = np.flatnonzero(is_device)
    hosts = np.arange(len(ids), dtype=np.int32) // per_server
    host_of = np.full(vertices, -1, np.int32)
    host_of[ids] = hosts
    host_of[nvswitches] = _only_host(ends, host_of, is_device)[nvswitches]

    builder = Builder()
    new = np.empty(vertices, np.int32)  # number in the file -> vertex
    for numbers, name in ((ids, "gpu"), (nvswitches, "nvswitch"), (others, "switch")):
        new[numbers] = builder.vertices(_named(name, numbers), len(numbers), host_of[numbers])
    (one, other), (bandwidth, delay) = new[ends].T, links
    builder.add(one, other, bandwidth, bandwidth, delay, np.zeros(len(ends)), _numbered(ends))
    placed = {"endpoint": new[ids], "nic": np.full(len(ids), -1), "host": hosts}
    return builder.finish(len(ids), placed, np.zeros(int(hosts[-1]) + 1))


def _named(name: str, numbers: np.ndarray):
    return lambda index: f"{name}{numbers[index]}"


def _only_host(ends: np.ndarray, host_of: np.ndarray, is_device: np.ndarray) -> np.ndarray:
    """For each vertex the host of all devices that cables join to it; -1 where there are none, or several hosts."""
    low, high = np.full(len(host_of), np.iinfo(np.int32).max, np.int32), np.full(len(host_of), -1, np.int32)
    for one, other in (ends.T, ends[:, ::-1].T):
        of_devices = is_device[other]
        np.minimum.at(low, one[of_devices], host_of[other[of_devices]])
        np.maximum.at(high, one[of_devices], host_of[other[of_devices]])
    return np.where(low == high, low, -1)


def joined(vertices: int, ends: np.ndarray) -> np.ndarray:
    """A label for each vertex, equal where cables join two. Each round takes the lowest label in reach, and then that
    label's own, so that labels jump ever farther."""
    label = np.arange(vertices)
    one, other = ends.T
    while True:
        low = np.minimum(label[one], label[other])
        new = label.copy()
        for at in (one, other, label[one], label[other]):
            np.minimum.at(new, at, low)
        new = new[new]
        if np.array_equal(new, label):
            return label
        label = new


def _numbered(ends: np.ndarray) -> np.ndarray:
    """Cables that join the same two vertices are numbered from 1; 0 for a single one."""
    pair = np.sort(ends, axis=1).astype(np.int64) @ np.array([1 << 32, 1])
    _, which, count = np.unique(pair, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    place = np.empty(len(pair), np.int64)
    place[order] = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    return np.where(count[which] > 1, place + 1, 0)
