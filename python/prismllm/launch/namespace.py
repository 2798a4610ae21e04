"""Network namespaces without a name: each lives as long as somebody holds its file or runs in it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _own() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(path: str) -> None:
    """Moves the calling thread, and what it starts from now on, into the namespace whose file that is."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(fd, _CLONE_NEWNET), f"entering the network namespace {path}")
    finally:
        os.close(fd)


@contextlib.contextmanager
def _coming_back() -> Iterator[None]:
    before = _own()
    try:
        yield
    finally:
        try:
            _check(_libc.setns(before, _CLONE_NEWNET), "coming back from a network namespace")
        finally:
            os.close(before)


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """The calling thread is in that namespace meanwhile."""
    with _coming_back():
        enter(path)
        yield


def create() -> int:
    """A new namespace's file, to be closed by the caller; only its loopback device is in it."""
    with contextlib.ExitStack() as undo:
        with _coming_back():
            _check(_libc.unshare(_CLONE_NEWNET), "making a network namespace")
            made = _own()
            undo.callback(os.close, made)
        undo.pop_all()
    return made
