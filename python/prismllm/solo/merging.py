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
    misfit: str = ""

    def summary(self) -> dict:
        return {"verified": self.verified, "split": self.split, "misfit": self.misfit}


def alike_ranks(folder: RunFolder, world_size: int) -> Alike:
    """ValueError where the groups or peers of a rank that was said to be like another do not follow."""
    if not os.path.exists(folder.classes):
        return Alike()
    with open(folder.classes) as file:
        outcome = json.load(file)
    found = Alike(verified=outcome["verified"], split=outcome["split"], misfit=outcome["misfit"])
    if not outcome["like"]:
        return found
    grid = Grid(world_size, groups_of(folder, 0))
    fragments = Fragments(folder, grid)
    number: dict[str, int] = {}  # of those that are used

    def numbered(key: str) -> int:
        if key not in number:
            number[key] = len(found.groups)
            found.groups.append((key, list(grid.by_key[key][1].members)))
        return number[key]

    for rank, model in sorted((int(rank), model) for rank, model in outcome["like"].items()):
        _, groups, peers = fragments.of(model)
        if (like := grid.like(model, rank, groups, peers, outcome["ways"][str(model)])) is None:
            raise ValueError(
                f"rank {rank} was taken to be like rank {model}, but its groups or peers do not follow; "
                "run all ranks, with --classes none"
            )
        found.ranks.append((rank, model, [numbered(key) for key in like[0]], like[1]))
    return found
