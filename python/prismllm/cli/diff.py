"""prism diff: are two traces equal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prismllm.cli.common import Output, common_options, wrong_use
from prismllm.cli.fragments import TraceFile

if TYPE_CHECKING:
    from prismllm.trace import Trace


@click.command(
    "diff", short_help="Whether two traces are equal", epilog="Example: prism diff slots1.prism slots8.prism"
)
@click.argument("a", type=TraceFile())
@click.argument("b", type=TraceFile())
@click.option("--timing", is_flag=True, help="Compare times and memory, too.")
@common_options
def command(output: Output, a: str, b: str, timing: bool) -> int:
    """Compare traces A and B. Exit code 0: equal; 1: different, and the first difference is printed."""
    from prismllm.trace import diff, load

    with wrong_use("diff"):
        one = load(a)
        equal, first = diff(one, load(b), timing)
    output.result({"equal": equal, "first_difference": first})
    if not output.quiet:
        output.print(("equal" if equal else _in_words(first, one)) + "\n")
    return 0 if equal else 1


def _in_words(first: dict, a: Trace) -> str:
    where = "the job" if first["rank"] is None else f"rank {first['rank']}"
    if first["node"] is not None:
        where += f", node {first['node']}"
        if first["rank"] is not None and (near := a.rank(first["rank"]).communication_at(first["node"])):
            where += f" ({near})"
    return f"different in {where}: {first['field']} is {first['a']} in A and {first['b']} in B"
