"""The zygote's side: slice after slice, as they are handed out."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable

_PATIENCE_S = 300.0  # for whoever hands them out, perhaps on another host


class Slices:
    """Gives the ranks to run; all of one slice have run when the next is asked for."""

    def __init__(self, fd: int, tell: Callable[..., None]):
        """`fd`: where an answer comes, a line with a JSON list of ranks, each time that `tell("free")` has asked."""
        self.fd, self.tell = fd, tell
        self._read = b""  # an end may come right behind a slice

    def batch(self) -> list[int]:
        self.tell("free")
        while b"\n" not in self._read:
            if not select.select([self.fd], [], [], _PATIENCE_S)[0]:
                raise TimeoutError(f"no slice, nor that there is none, has come within {_PATIENCE_S:.0f} s")
            more = os.read(self.fd, 1 << 16)
            if not more:
                return []  # who hands them out has ended: this run ends with it
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)
