"""The zygote's side: which rank runs next, from what those before it have done."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.solo.grid import Grid, Group
from prismllm.solo.plan import WAYS, Plan

if TYPE_CHECKING:  # it imports torch
    from prismllm.inputs.rule import Rules


def groups_of(folder: RunFolder, rank: int) -> list[Group]:
    """Those that this rank's program has made, of itself and of others."""
    with open(folder.rank_answers(rank)) as file:
        return [Group(key, tuple(members), site) for key, members, site in json.load(file)["groups"]]


class Fragments:
    """What ranks have recorded, as far as ranks are compared by it."""

    def __init__(self, folder: RunFolder, grid: Grid):
        self.folder, self.grid = folder, grid
        self._known: dict[int, tuple[bytes, list[str], list[int]]] = {}

    def of(self, rank: int) -> tuple[bytes, list[str], list[int]]:
        """(digest of its structure, keys of its groups by slot, its peers by slot)"""
        if rank not in self._known:
            self._known[rank] = self._read(rank)
        return self._known[rank]

    def _read(self, rank: int) -> tuple[bytes, list[str], list[int]]:
        from prismllm import _graph

        graph = _graph.open(os.fsencode(os.path.join(self.folder.fragments, f"rank-{rank}.prism")))
        slots = graph.group_slots(rank).tolist()
        names = [graph.group_names[slot] for slot in slots]
        sizes = [len(graph.group_members(slot)) for slot in slots]
        peers = graph.peer_slots(rank).tolist()
        digest = hashlib.sha256(json.dumps([sizes, len(peers), graph.strings]).encode())
        for name, column in sorted(graph.structure(int(graph.columns()["rank_class"][rank])).items()):
            digest.update(f"{name} {len(column)};".encode())
            digest.update(column.tobytes())
        return digest.digest(), names, peers

    def alike(self, model: int, rank: int) -> frozenset[str]:
        if model == rank:
            return frozenset(WAYS)
        (structure, groups, peers), (other, its_groups, its_peers) = self.of(model), self.of(rank)
        if structure != other or self.grid.shape(model) != self.grid.shape(rank):
            return frozenset()
        found = {way: self.grid.like(model, rank, groups, peers, way == "relative") for way in WAYS}
        return frozenset(way for way, like in found.items() if like == (its_groups, its_peers))

    def follows(self, model: int, rank: int, way: str) -> bool:
        _, groups, peers = self.of(model)
        return self.grid.like(model, rank, groups, peers, way == "relative") is not None


class Solo:
    """Gives the ranks to run, batch after batch; all of one have run when the next is asked for."""

    def __init__(self, options: LaunchOptions, rules: Rules):
        self.options, self.rules = options, rules
        self.folder = RunFolder(options.run_dir)
        self.plan: Plan | None = None
        self.begun = False

    def batch(self) -> list[int]:
        if not self.options.classes:
            ranks = [] if self.begun else list(self.options.ranks)
            self.begun = True
            return ranks
        if not self.begun:
            self.begun = True
            return [0]  # it tells of all groups
        if self.plan is None:
            grid = Grid(self.options.world_size, groups_of(self.folder, 0))
            fragments = Fragments(self.folder, grid)
            self.plan = Plan(grid, fragments.alike, fragments.follows, self.options.verify,
                             self.rules.classes, self.rules.told_apart)  # fmt: skip
            self.plan.done.add(0)
        if not (ranks := self.plan.batch()):
            with open(self.folder.classes, "w") as file:
                json.dump(asdict(self.plan.outcome), file)
        return ranks
