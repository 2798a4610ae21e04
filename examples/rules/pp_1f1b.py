"""A pipeline of stages that pass micro-batches of 2 sequences of 12 tokens, 32 numbers each."""

from prismllm import inputs

inputs.pipeline_activations(2, 12, 32)
