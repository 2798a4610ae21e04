"""Timing a trace slice by slice: which ranks are real at the same time, and what their own spans take."""

from prismllm.timing.plan import plan
from prismllm.timing.repetitions import repetitions, warm_up
from prismllm.timing.took import Took, classes_that_differ

__all__ = ["Took", "classes_that_differ", "plan", "repetitions", "warm_up"]
