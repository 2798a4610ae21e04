"""The job's process groups as dimensions of a grid, and what one rank's groups and peers are for another in its place.

Torch makes a group in every rank's process, of members or not, so that one rank's program names them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Peers elsewhere along an axis go with the rank (pipeline neighbours, rings), or stay where they are (a fixed root).
WAYS = ("relative", "fixed")


@dataclass(frozen=True)
class Group:
    key: str
    members: tuple[int, ...]  # global ranks, by group rank
    site: str  # where the program has made it


@dataclass
class Dimension:
    """Groups made at one place that have no rank in common: those of the tensor-parallel dimension, say."""

    groups: list[Group] = field(default_factory=list)
    of_rank: dict[int, tuple[Group, int]] = field(default_factory=dict)  # and the rank's position in it

    def add(self, group: Group) -> None:
        self.groups.append(group)
        self.of_rank.update({rank: (group, position) for position, rank in enumerate(group.members)})


class Grid:
    def __init__(self, world_size: int, groups: Iterable[Group]):
        self.world_size = world_size
        self.by_key: dict[str, tuple[int, Group]] = {}  # the number of its dimension, -1 for groups of all
        self.dimensions: list[Dimension] = []
        last: dict[str, int] = {}  # site -> the dimension that grows there
        for group in groups:
            if group.key in self.by_key:
                continue
            if len(group.members) == world_size and group.members == tuple(range(world_size)):
                self.by_key[group.key] = (-1, group)
                continue
            number = last.get(group.site, -1)
            if number < 0 or any(rank in self.dimensions[number].of_rank for rank in group.members):
                number = last[group.site] = len(self.dimensions)
                self.dimensions.append(Dimension())
            self.dimensions[number].add(group)
            self.by_key[group.key] = (number, group)
        self.axes = self._axes()
        self._at = self._by_coordinates()

    def _axes(self) -> list[int]:
        """Dimensions that hold every rank, each way of cutting the world once; groups of one rank tell nothing."""
        axes, seen = [], set()
        for number, dimension in enumerate(self.dimensions):
            cut = tuple(group.members for group in dimension.groups)
            if len(dimension.of_rank) == self.world_size and max(map(len, cut)) > 1 and cut not in seen:
                seen.add(cut)
                axes.append(number)
        return axes

    def _by_coordinates(self) -> dict[tuple[int, ...], int]:
        """Empty where the axes do not tell every rank from every other."""
        found = {self.coordinates(rank): rank for rank in range(self.world_size)}
        return found if len(found) == self.world_size else {}

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The rank's position in its group of each axis."""
        return tuple(self.dimensions[axis].of_rank[rank][1] for axis in self.axes)

    def line(self, rank: int, axis: int) -> tuple[int, ...]:
        """The ranks that differ from `rank` along one axis (an index into axes), itself among them."""
        if not self._at:
            return self.dimensions[self.axes[axis]].of_rank[rank][0].members
        at = self.coordinates(rank)
        size = len(self.dimensions[self.axes[axis]].of_rank[rank][0].members)
        places = (self._at.get((*at[:axis], position, *at[axis + 1 :])) for position in range(size))
        return tuple(place for place in places if place is not None)

    def group_sizes(self, rank: int) -> tuple[int, ...]:
        """What ranks of one class have in common: the size of their group in each dimension, 0 where they have none."""
        held = (dimension.of_rank.get(rank) for dimension in self.dimensions)
        return tuple(len(one[0].members) if one else 0 for one in held)

    def like(
        self, model: int, rank: int, groups: Sequence[str], peers: Sequence[int], ways: Sequence[str]
    ) -> tuple[list[str], list[int]] | None:
        """The groups and peers of `rank` where it is to the job what `model` is with these; None where that is not
        defined. `ways`: one of WAYS for each peer."""
        translated = self.groups_like(rank, groups)
        moved = [self.moved(peer, model, rank, way) for peer, way in zip(peers, ways, strict=True)]
        if translated is None or None in moved or len(set(moved)) != len(moved):
            return None
        return translated, moved

    def groups_like(self, rank: int, groups: Sequence[str]) -> list[str] | None:
        """The groups that `rank` has in the place of these of another rank."""
        translated = []
        for key in groups:
            if key not in self.by_key:
                return None
            number, group = self.by_key[key]
            if number >= 0:
                held = self.dimensions[number].of_rank.get(rank)
                if held is None or len(held[0].members) != len(group.members):
                    return None
                group = held[0]
            translated.append(group.key)
        return translated

    def moved(self, peer: int, model: int, rank: int, way: str) -> int | None:
        """The peer of `rank` in the place of one of `model`'s."""
        relative = way == "relative"
        if peer == model:
            return rank
        if not self._at:
            return (peer - model + rank) % self.world_size if relative else peer
        place = []
        for axis, at, old, new in zip(
            self.axes, self.coordinates(peer), self.coordinates(model), self.coordinates(rank), strict=True
        ):
            size = len(self.dimensions[axis].of_rank[rank][0].members)
            place.append(new if at == old else (at - old + new) % size if relative else at)
        return self._at.get(tuple(place))
