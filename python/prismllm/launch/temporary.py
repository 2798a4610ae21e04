"""Temporary folders of runs. What a run that was killed has left behind, the next one removes: the folder that has an
owner's mark which nobody holds a lock on. By lock, not by age or number of a process: those may be another's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile

_MARK = ".owner"
_NAME = re.compile(r"prism-[a-z-]+-[a-z0-9_]{8}")  # as mkdtemp names them


class TemporaryFolder:
    """Goes with the context, or with the next run where this process is killed before; stays for good after keep()."""

    def __init__(self, what: str):
        """`prism-WHAT-...` in the temporary folder. OSError where it cannot be made."""
        remove_left_over()
        self._lock = -1
        while self._lock < 0:
            self.path = tempfile.mkdtemp(prefix=f"prism-{what}-")
            with contextlib.suppress(FileNotFoundError):  # taken for left over by another run, before it was locked
                self._lock = _held(self.path)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_) -> None:
        self.remove()

    def keep(self) -> None:
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.path, _MARK))
            self._release()

    def remove(self) -> None:
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                _remove(self.path)
            self._release()

    def _release(self) -> None:
        os.close(self._lock)
        self._lock = -1


def _held(folder: str) -> int:
    """Puts the owner's mark there. FileNotFoundError where the folder has gone meanwhile."""
    mark = os.path.join(folder, _MARK)
    lock = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not os.path.exists(mark):
        os.close(lock)
        raise FileNotFoundError
    return lock


def _remove(path: str) -> None:
    """The mark last: whoever is killed meanwhile leaves it to the next one."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != _MARK:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
    shutil.rmtree(path, ignore_errors=True)


def remove_left_over() -> None:
    """Of this user's runs that were killed, in the temporary folder."""
    parent = tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(parent)):
            with contextlib.suppress(OSError):
                _remove_if_left(os.path.join(parent, name))


def _remove_if_left(path: str) -> None:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | flags)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return
        lock = os.open(_MARK, os.O_RDONLY | flags, dir_fd=folder)
        try:
            if stat.S_ISREG(os.fstat(lock).st_mode):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner lives
                _remove(path)
        finally:
            os.close(lock)
    finally:
        os.close(folder)
