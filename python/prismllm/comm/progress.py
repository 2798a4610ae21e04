"""How far the probe's ranks have come: a number of each in a file that all write to, and who ends a run in which
nothing goes on."""

from __future__ import annotations

import os
import struct
import time

from prismllm.comm.plan import WARM_UP, Point
from prismllm.launch import LaunchError
from prismllm.launch.processes import is_stopped_process
from prismllm.testbed.deadline import Deadline
from prismllm.units import counted

_NUMBER = struct.Struct("<q")
_PATIENCE_S, _SET_UP_S = 60.0, 120.0  # beside what the bytes take; for all ranks to know each other
_SLOWEST = 1e8  # bits per second of a network, unless it is known
_SLACK = 8  # times what bytes take at that rate


class Progress:
    """A rank's: it has begun so many repetitions, of one point after another."""

    def __init__(self, path: str, rank: int):
        self.file, self.at, self.count = os.open(path, os.O_WRONLY | os.O_CLOEXEC), _NUMBER.size * rank, 0

    def step(self) -> None:
        self.count += 1
        os.pwrite(self.file, _NUMBER.pack(self.count), self.at)


class Watch(Deadline):
    """Ends the run at the deadline, or when no rank has begun anything for longer than that can take, and says where
    the ranks are. `on_event` is for launch()."""

    def __init__(self, path: str, ranks: int, points: list[Point], repeat: int, deadline_s: float,
                 bits_per_second: float | None = None):  # fmt: skip
        super().__init__(deadline_s)
        self.path, self.ranks, self.points, self.each = path, ranks, points, WARM_UP + repeat
        self.bits_per_second = bits_per_second or _SLOWEST
        with open(path, "wb") as file:
            file.write(bytes(_NUMBER.size * ranks))
        self.begun, self.since = self._read(), time.monotonic()
        self.pids: dict[int, int] = {}
        self.cause = ""

    def on_event(self, event: dict) -> None:
        if event["event"] == "started":
            self.pids = {int(rank): pid for rank, pid in event["pids"].items() if int(rank) >= 0}
            self.since = time.monotonic()

    def turn(self) -> None:
        if self.passed_ns or not self.pids:
            return super().turn()
        now, begun = time.monotonic(), self._read()
        if begun != self.begun:
            self.begun, self.since = begun, now
        late, stuck = now > self.at, now - self.since > self.patience_s()
        if late or stuck:
            what = f"the measurement has not ended within {self.seconds:g} s" if late else "nothing goes on any more"
            self.cause = f"{what}: {self.where()}"
            self.passed_ns = time.monotonic_ns()
            self.end_run()

    def failures(self) -> list[tuple[int, LaunchError]]:
        return [(self.passed_ns, LaunchError(self.cause, 3))] if self.cause else super().failures()

    def patience_s(self) -> float:
        first = min(self.begun)
        if first == 0:
            return _SET_UP_S + self.ranks
        point = self._point(first)
        moved = point.bytes * point.members * point.rounds
        return _PATIENCE_S + _SLACK * 8 * moved / self.bits_per_second

    def where(self) -> str:
        """Who has been stopped, and who is behind."""
        if stopped := [rank for rank, pid in sorted(self.pids.items()) if is_stopped_process(pid)]:
            who = f"{_ranks(stopped)} {'was' if len(stopped) == 1 else 'were'} stopped by a signal"
            return f"{who}, {self._place(min(self.begun))}"
        first, last = min(self.begun), max(self.begun)
        if first == last:
            return f"all ranks are {self._place(first)}"
        behind = [rank for rank, count in enumerate(self.begun) if count == first]
        return f"{_ranks(behind)} still {'is' if len(behind) == 1 else 'are'} {self._place(first)}"

    def _point(self, count: int) -> Point:
        return self.points[min((count - 1) // self.each, len(self.points) - 1)]

    def _place(self, count: int) -> str:
        if count == 0:
            return "before the first measurement"
        point = self._point(count)
        number = min((count - 1) // self.each, len(self.points) - 1)
        return (f"at measurement {number + 1} of {len(self.points)} ({point.op} of {counted(point.bytes, 'byte')} "
                f"among {point.members} ranks)")  # fmt: skip

    def _read(self) -> list[int]:
        with open(self.path, "rb") as file:
            data = file.read(_NUMBER.size * self.ranks)
        return [count for (count,) in _NUMBER.iter_unpack(data.ljust(_NUMBER.size * self.ranks, b"\0"))]


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}"
