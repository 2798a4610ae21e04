"""Debuggers of real ranks on the terminal of the command that runs them (`prism emulate --debug`).

A rank has a session and log files of its own: it reads and writes the command's standard input and error, which it is
handed as descriptors. One rank has the terminal at a time, while it shows a prompt."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import io
import os
import pdb
import sys

from prismllm import takeover

# While somebody looks at a rank the others wait for it; no timeout of a process group is meant for that.
_PATIENCE = datetime.timedelta(days=365)


class _Terminal(io.TextIOBase):
    """Unbuffered: what a rank does not read is another's."""

    def __init__(self, reads: int, writes: int):
        self.reads, self.writes = reads, writes

    def readline(self, size=-1, /) -> str:
        line = b""
        while not line.endswith(b"\n") and (byte := os.read(self.reads, 1)):
            line += byte
        return line.decode(errors="replace")

    def write(self, text: str, /) -> int:
        left = text.encode(errors="backslashreplace")
        while left:
            left = left[os.write(self.writes, left) :]
        return len(text)


class RankDebugger(pdb.Pdb):
    def __init__(self, rank: int, terminal: _Terminal, turn_path: str):
        super().__init__(stdin=terminal, stdout=terminal, nosigint=True)
        self.prompt = f"(rank {rank}) "
        self.turn_path = turn_path

    def interaction(self, *args, **kwargs):
        # Not longer: a step of this rank may need one of another, which waits for its turn.
        with self._turn():
            return super().interaction(*args, **kwargs)

    @contextlib.contextmanager
    def _turn(self):
        turn = os.open(self.turn_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield
        finally:
            os.close(turn)


def serve(rank: int, reads: int, writes: int, turn_path: str) -> None:
    """In a rank, before its program: breakpoint() and pdb.set_trace() stop it on these descriptors. `turn_path` is a
    file of the run that all its ranks lock."""
    takeover.group_timeout = _PATIENCE
    debugger = None

    def set_trace(*_, **__) -> None:
        nonlocal debugger
        debugger = debugger or RankDebugger(rank, _Terminal(reads, writes), turn_path)
        debugger.set_trace(sys._getframe(1))

    pdb.set_trace = set_trace
    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = set_trace
