"""Which rank is on which device."""

from __future__ import annotations

import numpy as np

from prismllm.cluster.errors import Place
from prismllm.cluster.model import Site
from prismllm.cluster.tables import Values


def read_placement(values: Values, sites: list[tuple[Site, Place]]) -> np.ndarray:
    """int32[ranks], devices counted over all nodes in order."""
    kinds = [kind for site, _ in sites for kind in site.kinds]
    in_node = np.concatenate([np.tile(np.arange(kind.devices), kind.count) for kind in kinds])
    given = values["placement"]
    if not given:
        return np.arange(len(in_node), dtype=np.int32)
    if given["devices"] is not None:
        return _listed(given, len(in_node))
    ranks = given["ranks"] or len(in_node)
    if ranks > len(in_node):
        raise (given.place / "ranks").wrong(ranks, f"at most the {len(in_node)} devices of the cluster")
    if given["order"] == "round_robin":  # the first devices of all nodes, then the second ones
        return np.argsort(in_node, kind="stable").astype(np.int32)[:ranks]
    return np.arange(ranks, dtype=np.int32)


def _listed(given: Values, devices: int) -> np.ndarray:
    at, listed = given.place / "devices", given["devices"]
    if given["order"] is not None:
        raise (given.place / "order").error(f"{given.place / 'order'} stands beside devices; accepted: one of them")
    ranges = listed if isinstance(listed[0], tuple) else [(device, device) for device in listed]
    outside = [last for _, last in ranges if last >= devices]
    if outside:
        raise at.error(f"{at} names device {outside[0]}; accepted: 0 to {devices - 1}")
    ranks = sum(last - first + 1 for first, last in ranges)
    if given["ranks"] is not None and given["ranks"] != ranks:
        raise at.error(f"{at} names {ranks} devices; accepted: {given['ranks']}, as ranks says")
    placed = np.zeros(devices, bool)
    for first, last in ranges:
        if placed[first : last + 1].any():
            twice = first + int(np.argmax(placed[first : last + 1]))
            raise at.error(f"{at} names device {twice} twice; accepted: one rank on a device")
        placed[first : last + 1] = True
    return np.concatenate([np.arange(first, last + 1, dtype=np.int32) for first, last in ranges])
