"""Times that are the same in every run: ranks before all other processes, processors that wake at once, sleeps that end
when they should."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator

_PRIORITY = 10
_EARLY_S = 60e-6  # a process that sleeps at real-time priority wakes up at most so late, as a rule


@contextlib.contextmanager
def processors_awake() -> Iterator[None]:
    """No processor goes into a sleep that it leaves slowly. Where the machine has no such switch, nothing."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            fd = os.open("/dev/cpu_dma_latency", os.O_WRONLY | os.O_CLOEXEC)
            held.callback(os.close, fd)
            os.write(fd, struct.pack("i", 0))  # us
        yield


def become_steady() -> None:
    """In a rank, before its program: it and its threads go before everything at usual priority, and its time.sleep()
    ends when it should."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    sleep_punctually()


def before_others() -> None:
    """This process goes before everything at usual priority, where that may be had; else nothing."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))


def sleep_punctually() -> None:
    """In a rank, before its program: its time.sleep() ends when it should, as a device does."""
    time.sleep = _punctual(time.sleep)


def _punctual(sleep):
    def punctual_sleep(seconds, /):
        """Wakes up early and spins the rest, letting others of its priority go first."""
        end = time.monotonic() + seconds
        sleep(max(seconds - _EARLY_S, 0.0) if seconds > 0 else seconds)
        while time.monotonic() < end:
            os.sched_yield()

    return punctual_sleep
