"""Which ranks run, and whom each of the others is like.

Ranks that differ only in their position along an axis of the grid may do the same things (data-parallel replicas do,
pipeline stages do not). Along each axis through rank 0 as many positions run as it takes to see where the structure
changes: an interval whose ends and middle are equal counts as equal. Ranks with equal positions on all axes form a
candidate class. One of each runs, and of the others a sample; where one of these is not like the first, the class is
divided again, along the lines through these two. Where no line tells why, every rank of it runs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from prismllm.solo.grid import WAYS, Grid

Ways = tuple[frozenset[str], ...]  # by peer
LIMIT = 16  # of a class's sample, where nothing else is asked for


@dataclass
class Outcome:
    like: dict[int, int] = field(default_factory=dict)  # rank that has not run -> one that has
    verified: int = 0  # ranks that ran to be compared
    split: list[int] = field(default_factory=list)  # representatives of classes that were none
    misfit: str = ""  # why all of them ran in the end
    ways: dict[int, list[str]] = field(default_factory=dict)  # representative -> how each of its peers is found


class Plan:
    """`alike(model, rank)`: for each peer of the one of two ranks that have run the WAYS by which the other's follows;
    None where they differ in structure, groups or peers. `follows(model, rank, ways)`: whether a rank's groups and
    peers can be said without running it. `named`: the user's classes; `rules_of_rank`: ranks for which it differs are
    of different classes. The caller runs what batch() gives until it gives nothing."""

    def __init__(self, grid: Grid, alike: Callable[[int, int], Ways | None],
                 follows: Callable[[int, int, list[str]], bool], verify: int | None = None,
                 named: Sequence[object] | None = None,
                 rules_of_rank: Callable[[int], object] = lambda rank: None):  # fmt: skip
        self.grid = grid
        self._alike, self._follows = alike, follows
        self.verify = verify
        self._rules_of_rank = rules_of_rank
        self.done: set[int] = set()
        self._verified: set[int] = set()
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
        classes = yield from self._divided([0], range(self.grid.world_size))
        yield from self._run(classes)

    def _divided(self, through: list[int], members: Iterable[int]) -> Generator[Iterable[int], None, list[list[int]]]:
        """The classes of these ranks, from where the structure changes on the lines `through` some of them."""
        grid, inside = self.grid, set(members)
        at = grid.coordinates if grid.axes else lambda rank: (rank,)
        labels = []  # (axis, its position -> label)
        for model in through:
            lines = [grid.line(model, axis) for axis in range(len(grid.axes))] or [tuple(sorted(inside))]
            for axis, whole in enumerate(lines):
                line = tuple(rank for rank in whole if rank in inside)
                positions: dict[int, int] = {}
                yield from self._cut(line, 0, len(line) - 1, positions)
                merged = self._merged(line, positions)
                labels.append((axis, {at(line[index])[axis]: label for index, label in merged.items()}))
        classes: dict[object, list[int]] = defaultdict(list)
        for rank in sorted(inside):
            place = tuple(label.get(at(rank)[axis], ("", at(rank)[axis])) for axis, label in labels)
            classes[place, grid.group_sizes(rank), self._rules_of_rank(rank)].append(rank)
        return list(classes.values())

    def _named(self, named: Sequence[object]) -> Iterable[Iterable[int]]:
        classes: dict[object, list[int]] = defaultdict(list)
        for rank in range(self.grid.world_size):
            classes[named[rank], self._rules_of_rank(rank)].append(rank)
        yield from self._run(list(classes.values()))

    def _cut(self, line, first: int, last: int, positions: dict[int, int]) -> Iterable[Iterable[int]]:
        """Fills in position -> a position that it is like, for first to last: where both ends, the middle and the
        neighbours of the first are like it (every second or third rank may be another)."""
        looked = sorted({min(first + 1, last), min(first + 2, last), (first + last) // 2, last})
        middle = (first + last) // 2
        yield [line[first], *(line[at] for at in looked)]
        like_first = [self._alike(line[first], line[at]) for at in looked]
        if None not in like_first:
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
            same = (known for known in set(merged.values()) if self._alike(line[known], line[first]) is not None)
            merged[first] = next(same, first)
        return {position: merged[first] for position, first in positions.items()}

    def _run(self, classes: list[list[int]]) -> Iterable[Iterable[int]]:
        ran = [[rank for rank in members if rank in self.done] for members in classes]
        models = [known[0] if known else members[0] for known, members in zip(ran, classes, strict=True)]
        yield models
        samples = [self._sample(model, members) for model, members in zip(models, classes, strict=True)]
        yield [rank for sample in samples for rank in sample]
        split = []
        for model, members in zip(models, classes, strict=True):
            checked = [rank for rank in members if rank in self.done and rank != model]
            self._verified.update(checked)
            ways, odd = self._ways(model, checked)
            if odd is None:
                self.outcome.ways[model] = ways
                others = [rank for rank in members if rank not in self.done]
                known = [rank for rank in others if self._follows(model, rank, ways)]
                self.outcome.like.update(dict.fromkeys(known, model))
                yield set(others) - set(known)
            else:
                split.append(([model, odd], members))
        self.outcome.verified = len(self._verified)
        self.outcome.split += [model for (model, _), _ in split]
        for through, members in split:
            parts = yield from self._divided(through, members)
            if len(parts) > 1:
                yield from self._run(parts)
            else:  # no line of the grid tells why
                yield members

    def _ways(self, model: int, checked: Iterable[int]) -> tuple[list[str], int | None]:
        """How the peers of all these are found, or the first rank for which there is no way."""
        left = self._alike(model, model) or ()
        for rank in checked:
            found = self._alike(model, rank)
            if found is None or not all(both := [a & b for a, b in zip(left, found, strict=True)]):
                return [], rank
            left = tuple(both)
        return [next(way for way in WAYS if way in slot) for slot in left], None

    def _sample(self, model: int, members: list[int]) -> list[int]:
        others = [rank for rank in members if rank != model]
        wanted = min(max(2, -(-len(others) // 20)), LIMIT) if self.verify is None else self.verify
        chosen = random.Random(f"{model} of {len(members)}").sample(others, min(wanted, len(others)))
        return [rank for rank in chosen if rank not in self.done]
