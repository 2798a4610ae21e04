"""Structural comparison of two traces."""

from __future__ import annotations

from prismllm import _graph
from prismllm.trace.trace import Trace


def diff(a: Trace, b: Trace, timing: bool = False) -> tuple[bool, dict | None]:
    """(equal, first_difference). Each rank is compared with its namesake, so that the numbering of classes, groups and
    strings does not matter; groups are equal when their members are. With `timing`, times and memory count as well.

    first_difference is None or {"rank", "node", "field", "a", "b"}: the rank (None: the job as a whole), the node in
    that rank (None: no node is concerned), what differs, and both values in the program's words.
    """
    found = _graph.first_difference(a.graph, b.graph, timing)
    return found is None, found
