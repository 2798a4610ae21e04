"""What is measured: operations, sizes, and who takes part at the same time."""

from __future__ import annotations

from dataclasses import asdict, dataclass

# As torch.distributed names them. "exchange" is a pair in which each sends to the other, in one batch. In a "crossing"
# the first of a group sends to the second, which comes LATE_S later, sends to the third, and says only AFTER_S later,
# while that is on its way, that it is ready to receive.
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all", "send",
       "exchange", "crossing")  # fmt: skip
PAIRS = ("send", "exchange")
_CROSSING = 4  # members of its groups, one of them idle
LATE_S, AFTER_S = 0.005, 0.001
WARM_UP = 2  # repetitions of each that do not count
SMALLEST, LARGEST = 4, 1 << 30  # bytes


@dataclass(frozen=True)
class Place:
    """Where ranks are: consecutive ones share a host."""

    ranks: int
    hosts: int = 1

    def __post_init__(self):
        if not 2 <= self.ranks <= 1024 or not 1 <= self.hosts <= self.ranks or self.ranks % self.hosts:
            raise ValueError(f"{self.ranks} ranks on {self.hosts} hosts; accepted: 2 to 1024, as many on each host")

    @property
    def per_host(self) -> int:
        return self.ranks // self.hosts


@dataclass(frozen=True)
class Point:
    """All groups do the operation at once, `rounds` times back to back; `bytes` as of prism simulate collective.
    `held_out`: not for the fit, but for finding out how good it is."""

    op: str
    groups: tuple[tuple[int, ...], ...]
    bytes: int
    rounds: int = 1
    held_out: bool = False

    @property
    def members(self) -> int:
        return len(self.groups[0])

    def is_inside(self, place: Place) -> bool:
        """Whether nothing of it leaves a host."""
        return all(len({rank // place.per_host for rank in group}) == 1 for group in self.groups)

    def to_json(self) -> dict:
        return asdict(self)


def groupings(place: Place) -> list[tuple[tuple[int, ...], ...]]:
    """One pair alone; then for each size of groups those of neighbours, all at once, and those with a stride."""
    n = place.ranks
    sizes = [size for size in range(2, n + 1) if n % size == 0 and (size & (size - 1) == 0 or size == n)]
    found = [((0, n // 2),)]
    for size in sizes:
        stride = n // size
        found.append(tuple(tuple(range(first, first + size)) for first in range(0, n, size)))
        found.append(tuple(tuple(range(first, n, stride)) for first in range(stride)))
    return list(dict.fromkeys(found))


def sizes(largest: int) -> list[tuple[int, bool]]:
    """(bytes, held out) from one element on, by powers of two; every other one from 8 KiB on is held out."""
    found, size = [(SMALLEST, False)], 4096
    while size <= largest:
        found.append((size, size.bit_length() % 2 == 0))
        size *= 2
    return found


def make_plan(place: Place, ops: tuple[str, ...] = OPS, largest: int = 1 << 20) -> list[Point]:
    if unknown := [op for op in ops if op not in OPS]:
        raise ValueError(f"operation '{unknown[0]}'; accepted: {', '.join(OPS)}")
    if not 1 << 14 <= largest <= LARGEST:
        raise ValueError(f"a largest size of {largest} bytes; accepted: {1 << 14} to {LARGEST}")
    return [
        Point(op, groups, size, rounds, held_out)
        for groups in groupings(place)
        for op in ops
        if len(groups[0]) == {"send": 2, "exchange": 2, "crossing": _CROSSING}.get(op, len(groups[0]))
        for size, held_out in sizes(largest)
        for rounds in ((1, 4) if op in ("all_reduce", "all_gather", "exchange") else (1,))
    ]
