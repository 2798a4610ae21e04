"""Routers of a model replaced, without an edit of the program: what they give is what the wanted choices need."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from prismllm.moe.shares import Shares, assigned, counts_of

_CHOSEN, _OTHER = 8.0, -8.0  # logits
_NAMED = 12  # modules in an error


class _OptimizerSteps:
    """How many steps the program's optimizers have taken: all micro-batches of one, and what is computed again in its
    backward pass, get the same row of shares."""

    def __init__(self):
        self.taken: int | None = None  # None: not counted yet

    def __call__(self) -> int:
        if self.taken is None:
            from torch.optim.optimizer import register_optimizer_step_post_hook

            self.taken = 0
            register_optimizer_step_post_hook(self._count)
        return self.taken

    def _count(self, *_) -> None:
        from prismllm import takeover

        if takeover.answering is None or not takeover.answering.at_work:  # a rule's optimizers are not the program's
            self.taken += 1


_steps = _OptimizerSteps()


class MockRouter:
    """A forward hook. The module's floating-point output [..., experts] becomes logits whose top_k are the wanted
    choices, with the gradient that it had; an output of whole numbers [..., top_k] becomes the choices themselves.
    `step` gives the row of shares, `used` is called with each call."""

    def __init__(self, shares: Shares, top_k: int, capacity: int | None = None, step: Callable[[], int] = _steps,
                 used: Callable[[], None] = lambda: None):  # fmt: skip
        self.shares, self.top_k, self.capacity = shares, top_k, capacity
        self.step, self.used = step, used
        step()

    def counts(self, tokens: int, step: int) -> list[int]:
        return counts_of(self.shares[step % len(self.shares)], tokens, self.top_k, self.capacity)

    def choices(self, tokens: int, step: int) -> torch.Tensor:
        """[tokens, top_k]"""
        return torch.tensor(assigned(self.counts(tokens, step), tokens, self.top_k), dtype=torch.int64)

    def __call__(self, module: nn.Module, arguments: tuple, output: Any) -> Any:
        self.used()
        step = self.step()
        if isinstance(output, tuple | list):
            replaced = [self._replaced(one, step) if isinstance(one, torch.Tensor) else one for one in output]
            return type(output)(replaced)
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"the router gave a {type(output).__name__}; accepted: tensors")
        return self._replaced(output, step)

    def _replaced(self, output: torch.Tensor, step: int) -> torch.Tensor:
        experts = len(self.shares[0])
        whole = not output.is_floating_point()
        width = self.top_k if whole else experts
        if output.dim() == 0 or output.shape[-1] != width:
            raise ValueError(f"the router gave {list(output.shape)}; accepted: [..., {width}] for {experts} experts")
        choices = self.choices(output[..., 0].numel(), step).to(output.device)
        if whole:
            return choices.to(output.dtype).view(output.shape)
        logits = torch.full((choices.shape[0], experts), _OTHER, dtype=output.dtype, device=output.device)
        order = torch.arange(self.top_k, dtype=output.dtype, device=output.device)  # the first is the likeliest
        logits.scatter_(1, choices, (_CHOSEN - order / self.top_k).expand_as(choices))
        # With the gradient that it had, and without the infinities of values that were made.
        return logits.view(output.shape) + (output - output.detach()).nan_to_num(0.0, 0.0, 0.0)


def wrap(model: nn.Module, pattern: str, shares: Shares, top_k: int, capacity: int | None = None) -> list[str]:
    """Makes mock routers of the modules whose names (as in named_modules()) fit; returns the names."""
    names = [name for name, _ in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
    for name in names:
        model.get_submodule(name).register_forward_hook(MockRouter(shares, top_k, capacity))
    return names


def mock_router(pattern: str, shares: Shares, top_k: int, capacity: int | None = None, optional: bool = False) -> None:
    """In a file of rules: the same for every model of every rank, when it is first called. `pattern` is compared with
    the modules' names, counted from the module that the program calls. A run in which none has such a name is an error,
    unless it is optional."""
    from prismllm.inputs.rule import add_setup

    models = _Models(pattern, shares, top_k, capacity)
    add_setup(f"mock_router({pattern!r})", models.watch, optional, models.missed)


class _Models:
    """The modules of a rank's program, as they are called first."""

    def __init__(self, pattern: str, shares: Shares, top_k: int, capacity: int | None):
        self.pattern = pattern
        self._make = lambda used: MockRouter(shares, top_k, capacity, used=used)
        self._known: dict[int, nn.Module] = {}  # kept, so that no other gets the number of one of them
        self._hooked: set[int] = set()
        self._names: dict[str, None] = {}

    def watch(self, used: Callable[[], None]) -> None:
        def look(module: nn.Module, _arguments: tuple) -> None:
            """Before a module's call; a model is called before its parts, as a rule."""
            if id(module) in self._known:
                return
            for name, one in module.named_modules():
                self._known[id(one)] = one
                if not name:
                    continue
                self._names[name] = None
                if id(one) not in self._hooked and fnmatch.fnmatchcase(name, self.pattern):
                    self._hooked.add(id(one))
                    one.register_forward_hook(self._make(used))

        torch.nn.modules.module.register_module_forward_pre_hook(look)

    def missed(self) -> str:
        """For an error where nothing fitted: what modules there were."""
        if self._hooked:
            return ""
        likely = sorted(self._names, key=lambda name: not any(part in name.lower() for part in ("rout", "gate")))
        more = ", ..." if len(likely) > _NAMED else ""
        return f" (the modules are {', '.join(likely[:_NAMED])}{more})" if likely else " (no module was called)"
