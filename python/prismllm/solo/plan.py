"""Which ranks run, and whom each of the others is like.

Ranks that differ only in their position along an axis of the grid may do the same things (data-parallel replicas do,
pipeline stages do not). Along each axis through rank 0 as many positions run as it takes to see where the structure
changes: an interval whose ends and middle are equal counts as equal. Ranks with equal positions on all axes form a
candidate class. One of each runs, and of the others a sample; where one of these is not like the first, every rank of
the class runs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prismllm.solo.grid import Grid

WAYS = ("relative", "fixed")  # of Grid.like()
LIMIT = 16  # of a class's sample, where nothing else is asked for


@dataclass
class Outcome:
    like: dict[int, int] = field(default_factory=dict)  # rank that has not run -> one that has
    verified: int = 0
    split: list[int] = field(default_factory=list)  # representatives of classes that were none
    ways: dict[int, str] = field(default_factory=dict)  # representative -> of WAYS, how its peers are found


class Plan:
    """`alike(model, rank)`: the WAYS by which one of two ranks that have run follows from the other by structure,
    groups and peers; empty where they differ. `follows(model, rank, way)`: whether a rank's groups and peers can be
    said without running it. The caller runs what batch() gives until it gives nothing."""

    def __init__(self, grid: Grid, alike: Callable[[int, int], frozenset[str]],
                 follows: Callable[[int, int, str], bool], verify: int | None = None,
                 named: Callable[[int], object] | None = None):  # fmt: skip
        self.grid = grid
        self._alike, self._follows = alike, follows
        self.verify = verify
        self.done: set[int] = set()
        self.outcome = Outcome()
        self._steps = self._named(named) if named else self._found()

    def batch(self) -> list[int]:
        """Ranks to be run now, none twice; all of the last batch have run. Empty at the end."""
        for wanted in self._steps:
            if new := sorted(set(wanted) - self.done):
                self.done.update(new)
                return new
        return []

    def _found(self) -> Iterable[Iterable[int]]:
        yield [0]
        grid = self.grid
        lines = [grid.line(0, axis) for axis in range(len(grid.axes))] or [tuple(range(grid.world_size))]
        labels = []
        for line in lines:
            positions: dict[int, int] = {}
            yield from self._cut(line, 0, len(line) - 1, positions)
            labels.append(self._merged(line, positions))
        classes: dict[object, list[int]] = defaultdict(list)
        for rank in range(grid.world_size):
            at = grid.coordinates(rank) if grid.axes else (rank,)
            place = tuple(labels[axis].get(position, ("", position)) for axis, position in enumerate(at))
            classes[place, grid.shape(rank)].append(rank)
        yield from self._run(list(classes.values()))

    def _named(self, named: Callable[[int], object]) -> Iterable[Iterable[int]]:
        classes: dict[object, list[int]] = defaultdict(list)
        for rank in range(self.grid.world_size):
            classes[named(rank)].append(rank)
        yield from self._run(list(classes.values()))

    def _cut(self, line, first: int, last: int, positions: dict[int, int]) -> Iterable[Iterable[int]]:
        """Fills in position -> a position that it is like, for first to last."""
        middle = (first + last) // 2
        yield [line[first], line[middle], line[last]]
        like_first = [self._alike(line[first], line[at]) for at in (middle, last)]
        if all(like_first):
            positions.update(dict.fromkeys(range(first, last + 1), first))
        elif last - first < 2:
            positions.update({first: first, last: last})
        else:
            yield from self._cut(line, first, middle, positions)
            yield from self._cut(line, middle, last, positions)

    def _merged(self, line, positions: dict[int, int]) -> dict[int, int]:
        """Intervals that are alike are one class, wherever they lie."""
        firsts = sorted(set(positions.values()))
        merged: dict[int, int] = {}
        for first in firsts:
            same = (known for known in set(merged.values()) if self._alike(line[known], line[first]))
            merged[first] = next(same, first)
        return {position: merged[first] for position, first in positions.items()}

    def _run(self, classes: list[list[int]]) -> Iterable[Iterable[int]]:
        ran = [[rank for rank in members if rank in self.done] for members in classes]
        models = [known[0] if known else members[0] for known, members in zip(ran, classes, strict=True)]
        yield models
        samples = [self._sample(model, members) for model, members in zip(models, classes, strict=True)]
        yield [rank for sample in samples for rank in sample]
        for model, members in zip(models, classes, strict=True):
            checked = [rank for rank in members if rank in self.done and rank != model]
            self.outcome.verified += len(checked)
            ways = frozenset(WAYS).intersection(*(self._alike(model, rank) for rank in checked))
            if ways:
                way = self.outcome.ways[model] = next(way for way in WAYS if way in ways)
                others = [rank for rank in members if rank not in self.done]
                known = [rank for rank in others if self._follows(model, rank, way)]
                self.outcome.like.update(dict.fromkeys(known, model))
                yield set(others) - set(known)
            else:
                self.outcome.split.append(model)
                yield members

    def _sample(self, model: int, members: list[int]) -> list[int]:
        others = [rank for rank in members if rank != model]
        wanted = min(max(2, -(-len(others) // 20)), LIMIT) if self.verify is None else self.verify
        chosen = random.Random(f"{model} of {len(members)}").sample(others, min(wanted, len(others)))
        return [rank for rank in chosen if rank not in self.done]
