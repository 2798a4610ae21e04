"""Options of commands that can run on the testbed: hosts that are network namespaces of this machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import click

from prismllm.cli.run import alone
from prismllm.launch import Company, LaunchError, LaunchOptions, RunFolder


def testbed_options(command: Callable) -> Callable:
    """--hosts and --rate, handed to the command as `bed`: (hosts, bits per second), or None."""

    @click.option("--hosts", type=click.IntRange(1, 200), metavar="H",
                  help="Ranks are on H hosts, namespaces around a switch, N/H on each; root only.")  # fmt: skip
    @click.option("--rate", metavar="RATE", help="Of each host's link, both ways, as tc writes it: 400mbit.")
    @functools.wraps(command)
    def with_testbed(*args, hosts, rate, **kwargs):
        from prismllm.testbed import rate as bits_of

        if (hosts is None) != (rate is None):
            raise click.UsageError("--hosts and --rate go together: --hosts 8 --rate 400mbit")
        try:
            bed = (hosts, bits_of(rate)) if hosts else None
        except ValueError as reason:
            raise click.UsageError(f"--rate: {reason}") from None
        return command(*args, bed=bed, **kwargs)

    return with_testbed


def on(bed: tuple[int, int] | None) -> Callable:
    """For run_program()."""
    return functools.partial(_placed, bed=bed) if bed else alone


@contextlib.contextmanager
def made(bed: tuple[int, int]) -> Iterator:
    """The testbed. LaunchError, as for wrong use, where there is none on this machine."""
    from prismllm.testbed import Testbed, TestbedError

    with contextlib.ExitStack() as held:
        try:
            testbed = held.enter_context(Testbed(*bed))
        except (ValueError, TestbedError) as reason:
            raise LaunchError(str(reason), 2) from None
        yield testbed


@contextlib.contextmanager
def _placed(options: LaunchOptions, folder: RunFolder, bed: tuple[int, int]) -> Iterator[tuple[LaunchOptions, Company]]:
    with made(bed) as testbed:
        yield testbed.place(options), Company()
