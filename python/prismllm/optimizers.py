"""Steps of torch's optimizers as compute spans of their own: they tell iterations from the micro-batches in them."""

from __future__ import annotations

SPAN = "optimizer"  # csrc/graph/iterations.hpp


def watch() -> None:
    """From now on; to be called once, where a recording runs."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from prismllm import _c10d

    def name(span: str) -> None:
        if not torch.compiler.is_compiling():
            _c10d.name_next_span(span)

    register_optimizer_step_pre_hook(lambda *_: name(SPAN))
    register_optimizer_step_post_hook(lambda *_: name(""))
