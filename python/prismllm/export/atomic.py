"""Files that are complete or absent."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Callable, Iterator


def is_device(path: str) -> bool:
    """Whether something stands there that is neither file nor folder, and that a file must not take the place of."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[Callable[[str], object]]:
    """A function that writes text; at the end all of it takes the place of `path` at once, on an error nothing does.
    Compressed where the path ends in .gz; equal texts give equal bytes. A device or pipe is written to as it stands.
    OSError names `path`."""
    target = os.path.realpath(path)  # a link stays a link
    try:
        with _written_in_place(target) if is_device(target) else _written_beside(target) as write:
            yield write
    except OSError as reason:
        raise OSError(reason.errno, reason.strerror, path) from None


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")  # names of files and programs may be any bytes


@contextlib.contextmanager
def _written_in_place(path: str):
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # an error, not a wait, where nobody reads a pipe
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as raw:
        yield lambda text: raw.write(_encoded(text))


@contextlib.contextmanager
def _written_beside(path: str):
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".prism-")
    try:
        with os.fdopen(handle, "wb") as raw, contextlib.ExitStack() as stack:
            binary = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if path.endswith(".gz") else raw
            yield lambda text: binary.write(_encoded(text))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's own mode hides the file from everyone else
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
