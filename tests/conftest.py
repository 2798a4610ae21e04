"""Tests side by side: with `pytest -n 2` two processes run them, and what may not be disturbed runs alone."""

import fcntl
import os
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

MARKERS = {
    "alone": "has the machine for itself: it measures times, takes all processors, or looks at what processes share",
    "cold_start": "commands that it runs are new processes, not forks of one that has imported torch (warm_prism.py)",
}


@contextmanager
def _held(file: Path, how: int):
    handle = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        # Not by closing: ranks that a test has forked have the handle too.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


@contextmanager
def _turn(alone: bool):
    """The lock of the machine, shared by all tests but those that are `alone`. Whoever waits for it holds the lock of
    the door, so that nobody comes in meanwhile. Files of the tree serve as locks: nothing has to be made or removed."""
    here = Path(__file__).resolve()
    with ExitStack() as machine:
        with _held(here, fcntl.LOCK_EX):
            machine.enter_context(_held(here.parent, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


def pytest_configure(config: pytest.Config) -> None:
    for name, what in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {what}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that run alone come last, when no process waits for them any more."""
    items.sort(key=_alone)


def _alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item):
    if not hasattr(item.config, "workerinput"):  # the only process
        return (yield)
    with _turn(_alone(item)):
        return (yield)
