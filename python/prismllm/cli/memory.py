"""What commands that run ranks share about their memory: the limit, and what each rank held at most."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click

from prismllm.cli.memory_size import MemorySize
from prismllm.units import size

_FIGURES = ("peak_memory_bytes", "peak_reserved_bytes", "communicator_bytes", "peak_total_bytes")


class _CommunicatorMemory(click.ParamType):
    name = "auto|none|SIZE"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        named = {"auto": -1, "none": 0}
        if value in named:
            return named[value]
        try:
            return MemorySize().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"'{value:.40}' is none of: auto, none, a number of bytes, with K, M, G or T for powers of 1024")


def memory_options(command: Callable) -> Callable:
    """--memory-limit and --communicator-memory, handed to the command as `memory`: options of the launch."""

    @click.option("--memory-limit", type=MemorySize(), metavar="SIZE", help="Of each rank, e.g. 80GiB: what goes "
                  "beyond raises torch.OutOfMemoryError  [default: none]")  # fmt: skip
    @click.option("--communicator-memory", type=_CommunicatorMemory(), default="auto", show_default=True,
                  help="What a process group holds beside the tensors: NCCL's buffers by a model, nothing, or SIZE for "
                  "each")  # fmt: skip
    @functools.wraps(command)
    def with_memory(*args, memory_limit, communicator_memory, **kwargs):
        options = {"memory_limit_bytes": memory_limit or 0, "communicator_memory_bytes": communicator_memory}
        return command(*args, memory=options, **kwargs)

    return with_memory


def memory_summary(rank_class: list[int], told: dict[int, dict], options: dict) -> dict:
    """{"limit_bytes", "ranks": [{"rank", ...}]} of what ranks have told of themselves (LaunchResult.memory).
    `rank_class` [ranks], -1: not recorded; of ranks that did not run it is what one of their class has told."""
    sound = {rank: figures for rank, figures in sorted(told.items()) if _is_sound(figures)}
    of_class: dict[int, dict] = {}
    for rank, figures in sound.items():
        of_class.setdefault(int(rank_class[rank]), figures)
    ranks = [(rank, sound.get(rank) or of_class.get(int(cls))) for rank, cls in enumerate(rank_class) if cls >= 0]
    return {"limit_bytes": options["memory_limit_bytes"] or None,
            "ranks": [{"rank": rank} | figures for rank, figures in ranks if figures]}  # fmt: skip


def _is_sound(figures) -> bool:
    """They may come from another host."""
    return isinstance(figures, dict) and set(figures) == set(_FIGURES) and all(
        type(value) is int and value >= 0 for value in figures.values()
    )  # fmt: skip


def memory_rows(summary: dict) -> list[tuple[str, str]]:
    """Of the rank that held most."""
    memory = summary["memory"]
    if not memory["ranks"]:
        return []
    most = max(memory["ranks"], key=lambda one: one["peak_total_bytes"])
    text = f"up to {size(most['peak_memory_bytes'])} of tensors"
    if most["peak_reserved_bytes"] != most["peak_memory_bytes"]:
        text += f" in {size(most['peak_reserved_bytes'])} reserved"
    if most["communicator_bytes"]:
        text += f", {size(most['communicator_bytes'])} of communicators (a model)"
    if memory["limit_bytes"]:
        text += f", of {size(memory['limit_bytes'])}"
    return [("peak memory", f"{text}, rank {most['rank']}")]
