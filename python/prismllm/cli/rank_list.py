"""Lists of ranks as options: 0-3,8."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click


class RankList(click.ParamType):
    """A sorted tuple of ranks, each once."""

    name = "RANKS"

    def convert(self, value, param, ctx):
        if isinstance(value, tuple):
            return value
        ranks: set[int] = set()
        for part in value.split(","):
            match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part, re.ASCII)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if last < first or last >= 1 << 20:
                self.fail(f"'{value:.40}' is not a list of ranks; accepted: ranks and ascending ranges, as 0-3,8")
            ranks.update(range(first, last + 1))
        return tuple(sorted(ranks))


def check_ranks(option: str, ranks: tuple[int, ...], world_size: int) -> None:
    """All of them are ranks of the job."""
    if beyond := [rank for rank in ranks if rank >= world_size]:
        raise click.UsageError(f"{option}: rank {beyond[0]} is not in the job; accepted: 0 to {world_size - 1}")


def ranks_text(ranks: Sequence[int]) -> str:
    """Ascending ranks as the options have them: 0-3,8."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
