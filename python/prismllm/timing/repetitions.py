"""What a rank computes in each iteration, by its compute spans alone."""

from __future__ import annotations

import numpy as np

from prismllm import _graph

_COMPUTE = _graph.NODE_KINDS.index("compute")
_WARM_UP = 2  # iterations: the first allocates, the second still fills caches


def repetitions(marks: np.ndarray, kinds: np.ndarray, lanes: np.ndarray, duration_ns: np.ndarray) -> np.ndarray:
    """[iterations] ns computed on the marks' lane. The last iteration ends where the trace does; one without marks is
    one iteration. All columns have one entry a node."""
    lane = lanes == lanes[marks[0]] if len(marks) else lanes == 0
    own = np.where((kinds == _COMPUTE) & lane, duration_ns, 0)
    return np.add.reduceat(own, marks) if len(marks) else own.sum(keepdims=True)


def warm_up(iterations: int, wanted: int | None = None) -> int:
    """How many of the first are dropped: 2, or as many as leave one."""
    return min(_WARM_UP if wanted is None else wanted, max(iterations - 1, 0))
