"""A ZeroRedundancyOptimizer whose state rank 0 collects in the end."""

from prismllm import inputs

inputs.optimizer_states()
