"""The folder of recorded tensors while it is made: absent or empty until everything is in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

import click


class DataFolder:
    """`partial` is where the tensors go; publish() gives it its name."""

    def __init__(self, path: str):
        self.path = path  # as the user calls it
        self.target = os.path.realpath(path)
        self.partial = ""

    def publish(self) -> None:
        mask = os.umask(0)
        os.umask(mask)
        try:
            os.chmod(self.partial, 0o777 & ~mask)  # mkdtemp's own mode hides the folder from everyone else
            os.rename(self.partial, self.target)  # over an empty folder; one that holds something is refused
        except OSError as reason:
            raise OSError(f"--data: '{self.path}' cannot be made: {reason.strerror}") from None
        parent = os.open(os.path.dirname(self.target), os.O_RDONLY)
        with contextlib.suppress(OSError):  # some file systems refuse it for folders
            os.fsync(parent)
        os.close(parent)


@contextlib.contextmanager
def data_folder(path: str) -> Iterator[DataFolder]:
    """Refuses what cannot become a folder of tensors at once; leaves nothing behind unless it was published."""
    folder = DataFolder(path)
    parent, name = os.path.split(folder.target)
    try:
        if os.path.lexists(folder.target) and os.listdir(folder.target):
            raise OSError(0, "it holds files already; accepted: a new or an empty folder")
        if os.path.ismount(folder.target):
            raise OSError(0, "it is the root of a file system; name a folder inside")
        remove_left_over(parent, name)
        folder.partial, lock = locked_folder(parent, name)
    except (OSError, ValueError) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise click.UsageError(f"--data: '{path}' cannot be written ({why})") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder.partial, ignore_errors=True)
        os.close(lock)


def locked_folder(parent: str, name: str) -> tuple[str, int]:
    """A new folder that only this user can enter, and the descriptor that locks it."""
    while True:
        made = tempfile.mkdtemp(dir=parent, prefix=f"{name}.partial-")
        lock = os.open(made, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(made):  # else another run took it for left over, before it was locked
            return made, lock
        os.close(lock)


def remove_left_over(parent: str, name: str) -> None:
    """Of runs that were killed: those hold no lock any more."""
    for entry in os.listdir(parent):
        if not re.fullmatch(re.escape(name) + r"\.partial-[a-z0-9_]{8}", entry):  # as mkdtemp names them
            continue
        path = os.path.join(parent, entry)
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
