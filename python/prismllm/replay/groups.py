"""Which process groups are left of a job when some of its ranks are real."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prismllm import _replay
from prismllm.trace import Trace, load


@dataclass(frozen=True)
class GroupUse:
    """What real ranks do in a group, and whether their neighbours are enough for it."""

    op: str
    algorithm: str  # of a collective
    pruned: bool


@dataclass(frozen=True)
class GroupLeft:
    name: str
    members: int
    kind: str  # "real": no member is virtual; "mixed"
    kept: list[int]  # ranks: the real ones and their neighbours
    uses: list[GroupUse]  # of a mixed group


@dataclass(frozen=True)
class GroupReduction:
    left: list[GroupLeft]
    vanished: int  # groups without a real rank
    # Ranks in groups, each counted in every group: of all groups, of those left, of what is kept of them.
    members: int
    members_left: int
    members_kept: int

    @property
    def before(self) -> int:
        return self.vanished + len(self.left)


def reduce_groups(trace: Trace | str | os.PathLike, ranks: Iterable[int], *,
                  algorithms: Mapping[str, str] | None = None) -> GroupReduction:  # fmt: skip
    """The groups of `trace` when `ranks` are real. `algorithms`: by operation, as `prismllm.simulate` names them; of
    others the default. ValueError for ranks that there are not, and algorithms that an operation does not have."""
    trace = trace if isinstance(trace, Trace) else load(trace)
    found = _replay.reduce_groups(trace.graph, list(ranks), dict(algorithms or {}))
    left = [
        GroupLeft(trace.groups[one.group].name, len(trace.groups[one.group].members), one.kind, one.kept,
                  [GroupUse(use.op, use.algorithm, use.pruned) for use in one.uses])
        for one in found.groups if one.kind != "vanished"
    ]  # fmt: skip
    return GroupReduction(left, found.vanished, found.members, found.members_left, found.members_kept)
