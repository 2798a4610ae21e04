"""Accelerators as ranks will see them, and which rank is bound to which. Found without asking the driver."""

from __future__ import annotations

import json
import os


def visible_devices() -> int:
    """How many NVIDIA devices the ranks may use, as CUDA_VISIBLE_DEVICES numbers them."""
    nodes = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or not nodes:
        return len(nodes)
    count = 0
    for word in map(str.strip, chosen.split(",")):
        # As CUDA reads it: the first that names no device ends the list.
        if not (word.startswith(("GPU-", "MIG-")) or (word.isdigit() and int(word) < len(nodes))):
            break
        count += 1
    return count


def fake_devices(path: str) -> int:
    with open(path) as file:
        return json.load(file).get("devices", 1)


def ranks_per_node(world_size: int, devices: int, slots: int) -> int:
    """LOCAL_RANK must index a device that has a slot, and nodes are of one size, as torchrun's are: the most ranks for
    which both hold."""
    most = min(world_size, devices, slots)
    return next(count for count in range(most, 0, -1) if world_size % count == 0)
