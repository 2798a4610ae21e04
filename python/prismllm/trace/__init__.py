"""Traces: what each rank of a training job did, read from a `.prism` file without a copy.

    trace = prismllm.load("job.prism")
    trace.rank(3).duration_ns[trace.rank(3).is_kind("wait")].sum()

As tables with names in them, and with who waited for whom: `trace.tables` (pyarrow), `trace.frames` (pandas); see
prismllm.analysis.tables.

All times are integer nanoseconds of the rank's clock, sizes are bytes, ranks are global ranks. Columns are read-only
NumPy arrays over the mapped file; their meaning is that of csrc/graph/graph.hpp.
"""

from prismllm.trace.diff import diff
from prismllm.trace.info import info
from prismllm.trace.trace import Group, Memory, Rank, Trace, load

__all__ = ["Group", "Memory", "Rank", "Trace", "diff", "info", "load"]
