"""Rules for `prism capture --inputs rules.py`: what ranks that run alone receive in the place of their peers' tensors.

    # rules.py
    from prismllm import inputs

    inputs.tokens(50257, group="tp")
    inputs.rule("loss scale", op="all_reduce", reduce_op="max", shape=(1,)).peers(0)

docs/solo_capture.md explains them with examples."""

from prismllm.inputs.builtin import (
    dataloader_status,
    objects,
    peer_objects,
    pipeline_activations,
    tokens,
    zero_data_peers,
)
from prismllm.inputs.communication import Communication
from prismllm.inputs.generators import constant, integers, like_mine, normal, recorded, zeros
from prismllm.inputs.rule import Rule, classes, rule

__all__ = [
    "Communication",
    "Rule",
    "classes",
    "constant",
    "dataloader_status",
    "integers",
    "like_mine",
    "normal",
    "objects",
    "peer_objects",
    "pipeline_activations",
    "recorded",
    "rule",
    "tokens",
    "zero_data_peers",
    "zeros",
]
