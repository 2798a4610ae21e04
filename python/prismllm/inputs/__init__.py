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
from prismllm.inputs.checkpoints import optimizer_states, replicated_checkpoint
from prismllm.inputs.communication import Communication
from prismllm.inputs.generators import constant, integers, like_mine, normal, recorded, zeros
from prismllm.inputs.rule import Rule, classes, rule, store

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
    "optimizer_states",
    "peer_objects",
    "pipeline_activations",
    "recorded",
    "replicated_checkpoint",
    "rule",
    "store",
    "tokens",
    "zero_data_peers",
    "zeros",
]
