"""Figures from the recorded nodes of a trace, with NumPy alone: who met whom and when, what ranks did with their time.

The definitions are those of replay (csrc/replay/report.cpp); on a replayed trace both give the same numbers.
"""

from prismllm.analysis.iterations import iteration_bounds, iteration_times, iterations_of_nodes
from prismllm.analysis.meetings import Meetings
from prismllm.analysis.operations import Operation, operations
from prismllm.analysis.usage import Usage, split_waits, usage
from prismllm.analysis.with_times import with_times

__all__ = [
    "Meetings",
    "Operation",
    "Usage",
    "iteration_bounds",
    "iteration_times",
    "iterations_of_nodes",
    "operations",
    "split_waits",
    "usage",
    "with_times",
]
