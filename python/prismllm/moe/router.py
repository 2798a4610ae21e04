"""Routers of a model replaced, without an edit of the program: what they give is what the wanted choices need."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from prismllm.moe.shares import Shares, assigned, counts_of

_CHOSEN, _OTHER = 8.0, -8.0  # logits


class MockRouter:
    """A forward hook. The module's floating-point output [..., experts] becomes logits whose top_k are the wanted
    choices, with the gradient that it had; an output of whole numbers [..., top_k] becomes the choices themselves."""

    def __init__(self, shares: Shares, top_k: int, capacity: int | None = None):
        self.shares, self.top_k, self.capacity = shares, top_k, capacity
        self.step = 0  # calls so far

    def counts(self, tokens: int, step: int) -> list[int]:
        return counts_of(self.shares[step % len(self.shares)], tokens, self.top_k, self.capacity)

    def choices(self, tokens: int, step: int) -> torch.Tensor:
        """[tokens, top_k]"""
        return torch.tensor(assigned(self.counts(tokens, step), tokens, self.top_k), dtype=torch.int64)

    def __call__(self, module: nn.Module, arguments: tuple, output: Any) -> Any:
        if isinstance(output, tuple | list):
            step = self.step
            replaced = [self._replaced(one, step) if isinstance(one, torch.Tensor) else one for one in output]
            self.step += 1
            return type(output)(replaced)
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"the router gave a {type(output).__name__}; accepted: tensors")
        replaced = self._replaced(output, self.step)
        self.step += 1
        return replaced

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
        return logits.view(output.shape) + (output - output.detach())


def wrap(model: nn.Module, pattern: str, shares: Shares, top_k: int, capacity: int | None = None) -> list[str]:
    """Makes mock routers of the modules whose names (as in named_modules()) fit; returns the names."""
    names = [name for name, _ in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
    for name in names:
        model.get_submodule(name).register_forward_hook(MockRouter(shares, top_k, capacity))
    return names


def mock_router(pattern: str, shares: Shares, top_k: int, capacity: int | None = None) -> None:
    """In a file of rules: the same for every model of every rank, when it is first called. A run in which no module has
    such a name is an error."""
    from prismllm.inputs.rule import add_setup

    add_setup(f"mock_router({pattern!r})", lambda used: _watch_models(pattern, shares, top_k, capacity, used))


def _watch_models(pattern: str, shares: Shares, top_k: int, capacity: int | None, used: Callable[[], None]) -> None:
    seen: dict[int, nn.Module] = {}  # kept, so that no other gets the number of one of them

    def look(module: nn.Module, _arguments: tuple) -> None:
        """Before a module's first call; a model is called before its parts."""
        if id(module) in seen:
            return
        for name, one in module.named_modules():
            if id(one) not in seen and name and fnmatch.fnmatchcase(name, pattern):
                one.register_forward_hook(MockRouter(shares, top_k, capacity))
                used()
            seen[id(one)] = one

    torch.nn.modules.module.register_module_forward_pre_hook(look)
