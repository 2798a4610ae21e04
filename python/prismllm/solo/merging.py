"""The command line's side: ranks that have not run, with the groups and peers that follow from those that have."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from prismllm.launch.options import RunFolder
from prismllm.solo.grid import Grid
from prismllm.solo.running import Fragments, groups_of


@dataclass
class Alike:
    """As _graph.merge() takes them."""

    groups: list[tuple[str, list[int]]] = field(default_factory=list)
    ranks: list[tuple[int, int, list[int], list[int]]] = field(default_factory=list)
    verified: int = 0
    split: list[int] = field(default_factory=list)

    def summary(self) -> dict:
        return {"verified": self.verified, "split": self.split}


def alike_ranks(folder: RunFolder, world_size: int) -> Alike:
    """ValueError where the groups or peers of a rank that was said to be like another do not follow."""
    if not os.path.exists(folder.classes):
        return Alike()
    with open(folder.classes) as file:
        outcome = json.load(file)
    found = Alike(verified=outcome["verified"], split=outcome["split"])
    if not outcome["like"]:
        return found
    grid = Grid(world_size, groups_of(folder, 0))
    fragments = Fragments(folder, grid)
    number = {}
    for key, (_, group) in grid.by_key.items():
        number[key] = len(found.groups)
        found.groups.append((key, list(group.members)))
    for rank, model in sorted((int(rank), model) for rank, model in outcome["like"].items()):
        _, groups, peers = fragments.of(model)
        if (like := grid.like(model, rank, groups, peers, outcome["ways"][str(model)] == "relative")) is None:
            raise ValueError(
                f"rank {rank} was taken to be like rank {model}, but its groups or peers do not follow; "
                "run all ranks, with --classes none"
            )
        found.ranks.append((rank, model, [number[key] for key in like[0]], like[1]))
    return found
