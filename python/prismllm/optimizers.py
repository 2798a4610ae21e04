"""Steps of torch's optimizers as compute spans of their own: they tell iterations from the micro-batches in them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

SPAN = "optimizer"  # csrc/graph/iterations.hpp
_here = threading.local()


@contextlib.contextmanager
def not_the_programs() -> Iterator[None]:
    """Steps that this thread takes meanwhile do not count."""
    _here.ignored = getattr(_here, "ignored", 0) + 1
    try:
        yield
    finally:
        _here.ignored -= 1


def on_steps(before: Callable[[], None] | None, after: Callable[[], None]) -> None:
    """Calls these around each step that the program takes, from now on."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def counted(call: Callable[[], None]) -> Callable:
        def hook(*_) -> None:
            if not torch.compiler.is_compiling() and not getattr(_here, "ignored", 0):
                call()

        return hook

    if before is not None:
        register_optimizer_step_pre_hook(counted(before))
    register_optimizer_step_post_hook(counted(after))


def watch() -> None:
    """From now on; to be called once, where a recording runs."""
    from prismllm import _c10d

    on_steps(lambda: _c10d.name_next_span(SPAN), lambda: _c10d.name_next_span(""))
