"""Slices of ranks that run alone, handed to whoever is free."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.supervisor import Company


class Handout:
    """The way to this host's zygote: prismllm.timing.running reads the other end."""

    def __init__(self):
        self.fd, self._way = os.pipe()
        os.set_blocking(self._way, False)
        self._pending = b""

    def give(self, ranks: list[int]) -> None:
        """The answer to its "free"; none: there are no more."""
        self._pending += json.dumps(ranks).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """What did not fit at once; to be called now and then."""
        with contextlib.suppress(OSError):  # it is full, or the zygote has ended
            while self._pending:
                self._pending = self._pending[os.write(self._way, self._pending) :]

    def close(self) -> None:
        os.close(self._way)


class ThisHost(Company):
    """No other host: the slices, one after the other."""

    def __init__(self, slices: list[list[int]]):
        self.left, self.handout = deque(slices), Handout()

    def take(self) -> list[int]:
        return self.left.popleft() if self.left else []

    def on_event(self, event: dict) -> None:
        if event["event"] == "free":
            self.handout.give(self.take())

    def stop(self, why: str) -> None:
        self.left.clear()

    def turn(self) -> None:
        self.handout.flush()


@contextlib.contextmanager
def on_this_host(
    options: LaunchOptions, folder: RunFolder, slices: list[list[int]]
) -> Iterator[tuple[LaunchOptions, Company]]:
    """For run_program()."""
    company = ThisHost(slices)
    with contextlib.closing(company.handout):
        yield replace(options, slices_fd=company.handout.fd), company
