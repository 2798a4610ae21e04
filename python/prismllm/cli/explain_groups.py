"""`prism emulate --explain-groups`: which process groups are left of a job when some ranks are real (paper,
section 6.2)."""

from __future__ import annotations

from prismllm.cli.common import Output
from prismllm.cli.rank_list import ranks_text
from prismllm.replay import GroupLeft, GroupReduction, reduce_groups
from prismllm.trace import Trace

_SHOWN = 64  # rows of groups


def explain_groups(output: Output, base: str, trace: Trace, ranks: tuple[int, ...]) -> None:
    reduction = reduce_groups(trace, ranks)
    output.result({"groups": summary_of(reduction)})
    output.table(f"groups of {base}", rows_of(reduction))


def summary_of(reduction: GroupReduction) -> dict:
    return {
        "before": reduction.before, "left": len(reduction.left), "vanished": reduction.vanished,
        "members": reduction.members, "members_left": reduction.members_left, "members_kept": reduction.members_kept,
        "kept": [
            {"group": one.name, "members": one.members, "kind": one.kind, "kept": one.kept,
             "uses": [{"op": use.op, "algorithm": use.algorithm, "pruned": use.pruned} for use in one.uses]}
            for one in reduction.left
        ],
    }  # fmt: skip


def rows_of(reduction: GroupReduction) -> list[tuple[str, str]]:
    rows = [
        ("groups", f"{reduction.before}, of which {len(reduction.left)} are left; {reduction.vanished} have no real "
         "rank"),
        ("places of ranks", f"{reduction.members} in all groups, {reduction.members_left} in those left, of which "
         f"{reduction.members_kept} are needed"),
        *((one.name, _words(one)) for one in reduction.left[:_SHOWN]),
    ]  # fmt: skip
    if (more := len(reduction.left) - _SHOWN) > 0:
        rows.append(("", f"and {more} more groups: --json lists all"))
    return rows


def _words(one: GroupLeft) -> str:
    if one.kind == "real":
        return f"{one.members} ranks, all real"
    uses = [f"{use.op} ({use.algorithm})" if use.algorithm else use.op for use in one.uses]
    whole = sorted({use.op for use in one.uses if not use.pruned})
    text = f"ranks {ranks_text(one.kept)} of {one.members}, for {', '.join(uses) or 'nothing'}"
    return text + (f"; {', '.join(whole)} needs all" if whole and len(one.kept) == one.members else "")
