"""A pipeline of stages that pass micro-batches of 2 sequences of 16 tokens, 48 numbers each."""

from prismllm import inputs

inputs.pipeline_activations(2, 16, 48)
