"""prism agent: this host's slots, for a capture on several hosts."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import CommandError
from prismllm.cli.hosts import Address, TokenFile
from prismllm.cli.memory_size import MemorySize
from prismllm.launch import LaunchError
from prismllm.launch.logs import deliver


@click.command("agent", short_help="Offer this host's slots to a capture on another host",
               epilog="Example: prism agent --connect head.cluster --token-file ~/prism.token --slots 8")  # fmt: skip
@click.option("--connect", type=Address(), required=True, metavar="HOST[:PORT]",
              help="Where `prism capture --agents` listens  [default port: 29600]")  # fmt: skip
@click.option("--token-file", "token", type=TokenFile(), required=True, help="The secret that both share (mode 0600).")
@click.option(
    "--slots", type=click.IntRange(1, 65536), metavar="M", help="Ranks that compute here at a time  [default: cores]"
)
@click.option(
    "--memory-budget", type=MemorySize(), default=0, help="For tensors in flight here  [default: 3/4 of free]"
)
@click.option("--spill-dir", type=click.Path(exists=True, file_okay=False, writable=True),
              help="On a disk, for tensors beyond the budget  [default: the temporary folder]")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(1.0, 86400.0), default=300.0, metavar="SECONDS",
              show_default=True, help="For the head, and for all agents to be there.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Only errors.")
def command(connect: tuple[str, int], token: bytes, slots: int | None, memory_budget: int, spill_dir: str | None,
            wait_s: float, quiet: bool) -> None:  # fmt: skip
    """Run ranks of a `prism capture` that was started on another host (one agent per host, for example by
    `torchrun --nnodes` or `srun`), and end with it. What the ranks print appears there."""
    import sys

    from prismllm.launch.hosts.agent import serve
    from prismllm.launch.hosts.job import Means

    def say(text: str) -> None:
        if not quiet:
            deliver(sys.stderr, f"prism agent: {text}\n")

    try:
        means = Means(
            slots or len(os.sched_getaffinity(0)), memory_budget, os.path.abspath(spill_dir) if spill_dir else ""
        )
        serve(connect, token, means, wait_s, say)
    except LaunchError as failure:
        raise CommandError(str(failure), failure.exit_code) from None
