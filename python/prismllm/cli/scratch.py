"""A private folder for what a command keeps while it runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

import click

from prismllm.cli.data_folder import locked_folder, remove_left_over


def room(path: str) -> int:
    """Bytes that this user may still write there."""
    there = os.statvfs(path)
    return there.f_bavail * there.f_frsize


@contextlib.contextmanager
def scratch_folder(name: str, beside: str, shared: bool = False) -> Iterator[str]:
    """In the temporary folder or beside the file `beside`, wherever there is more room (`shared`: the latter, which
    other hosts see as well). It goes in the end; where a run was killed, with the next."""
    parents = [] if shared else [tempfile.gettempdir()]
    parents.append(os.path.dirname(os.path.realpath(beside)))
    parent = max(parents, key=room)
    try:
        remove_left_over(parent, name)
        path, lock = locked_folder(parent, name)
    except OSError as reason:
        raise click.UsageError(f"no folder can be made in '{parent}': {reason.strerror}") from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
