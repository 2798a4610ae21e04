"""The zygote's side: which rank runs next, from what those before it have done."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.solo.grid import WAYS, Grid, Group
from prismllm.solo.plan import Plan, Ways

if TYPE_CHECKING:  # it imports torch
    from prismllm.inputs.rule import Rules


_MOST_LEFT = 4096  # ranks that run because those that have run do not fit together; more would take an hour


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

    def alike(self, model: int, rank: int) -> Ways | None:
        (structure, groups, peers), (other, its_groups, its_peers) = self.of(model), self.of(rank)
        if model == rank:
            return (frozenset(WAYS),) * len(peers)
        if structure != other or self.grid.group_sizes(model) != self.grid.group_sizes(rank):
            return None
        if self.grid.groups_like(rank, groups) != its_groups:
            return None
        found = tuple(
            frozenset(way for way in WAYS if self.grid.moved(peer, model, rank, way) == its_peer)
            for peer, its_peer in zip(peers, its_peers, strict=True)
        )
        return found if all(found) else None

    def follows(self, model: int, rank: int, ways: list[str]) -> bool:
        _, groups, peers = self.of(model)
        return self.grid.like(model, rank, groups, peers, ways) is not None


class Solo:
    """Gives the ranks to run, batch after batch; all of one have run when the next is asked for."""

    def __init__(self, options: LaunchOptions, rules: Rules):
        self.options, self.rules = options, rules
        self.folder = RunFolder(options.run_dir)
        self.plan: Plan | None = None
        self.begun = self.over = False

    def batch(self) -> list[int]:
        if self.over:
            return []
        if not self.options.classes:
            self.over = True
            return list(self.options.ranks)
        if not self.begun:
            self.begun = True
            return [0]  # it tells of all groups
        if self.plan is None:
            grid = Grid(self.options.world_size, groups_of(self.folder, 0))
            fragments = Fragments(self.folder, grid)
            self.plan = Plan(grid, fragments.alike, fragments.follows, self.options.verify,
                             self.rules.classes, self.rules.rules_of_rank)  # fmt: skip
            self.plan.done.add(0)
        if ranks := self.plan.batch():
            return ranks
        self.over = True
        self._write_outcome()
        if not (left := sorted(self.plan.outcome.like)) or not (misfit := self._misfit()):
            return []
        # Some class was none, and no sample has shown it.
        self.plan.outcome.misfit = misfit
        if len(left) > _MOST_LEFT:
            left = []
        else:
            self.plan.outcome.like.clear()
        self._write_outcome()
        return left

    def _write_outcome(self) -> None:
        with open(self.folder.classes, "w") as file:
            json.dump(asdict(self.plan.outcome), file)

    def _misfit(self) -> str:
        """Where the ranks, with those that did not run, contradict each other: a message that nobody receives."""
        from prismllm import _graph
        from prismllm.solo.merging import alike_ranks

        alike = alike_ranks(self.folder, self.options.world_size)
        paths = [os.fsencode(os.path.join(self.folder.fragments, f"rank-{rank}.prism")) for rank in self.plan.done]
        first = _graph.open(paths[0])
        try:
            graph = _graph.merge(paths, first.world_size, first.progress_model, first.timed, "{}", alike.groups,
                                 alike.ranks)  # fmt: skip
            _graph.validate(graph)
        except ValueError as reason:
            return str(reason)
        return ""
