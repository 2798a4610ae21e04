"""Files that are complete or absent."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def replacing(path: str) -> Iterator[Callable[[str], object]]:
    """A function that writes text; at the end all of it takes the place of `path` at once, on an error nothing does.
    Compressed where the path ends in .gz; equal texts give equal bytes."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".prism-")
    try:
        with os.fdopen(handle, "wb") as raw, contextlib.ExitStack() as stack:
            binary = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0)) if path.endswith(".gz") else raw
            yield lambda text: binary.write(text.encode())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's own mode hides the file from everyone else
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
