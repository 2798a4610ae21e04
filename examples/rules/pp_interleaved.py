"""A pipeline, several stages a rank, that passes micro-batches of 4 rows of 64 numbers."""

from prismllm import inputs

inputs.pipeline_activations(4, 64)
