"""What peers are made to put in. A generator is called as generator(communication, peer, like) and returns a tensor of
the size and type of `like`, or a number for all of its elements. `same` says that all peers put in the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from prismllm.inputs.communication import Communication

Generator = Callable[[Communication, int, torch.Tensor], Any]


def _same(generator: Generator) -> Generator:
    generator.same = True
    return generator


def constant(value: float | int | bool) -> Generator:
    """Every element is `value`."""
    return _same(lambda communication, peer, like: torch.full_like(like, value))


def zeros() -> Generator:
    return constant(0)


def like_mine() -> Generator:
    """What this rank puts in itself, cut or filled up with zeros where a peer's tensor has another size. Where it puts
    in nothing, because it receives: standard normal numbers, or zeros if they are whole; of a broadcast, what is in its
    buffer."""
    draw = normal()

    def generate(communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        position = next(i for i, tensor in enumerate(communication.sent_by(peer)) if tensor is like)
        own = communication.own()
        if position < len(own):
            return _fitted(own[position], like)
        if communication.op == "broadcast":
            return like.clone()
        whole = not (like.is_floating_point() or like.is_complex())
        return torch.zeros_like(like) if whole else draw(communication, peer, like)

    return _same(generate)


def integers(low: int, high: int) -> Generator:
    """Whole numbers, low <= x < high, of each peer its own, the same in every run."""
    if not low < high:
        raise ValueError(f"integers({low}, {high}); accepted: low < high")

    def generate(communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        drawn = torch.randint(low, high, like.shape, generator=communication.generator(peer))
        return drawn.to(like.dtype)

    return generate


def normal(mean: float = 0.0, deviation: float = 1.0) -> Generator:
    """Normally distributed numbers, of each peer its own, the same in every run."""

    def generate(communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        drawn = torch.randn(like.shape, generator=communication.generator(peer), dtype=torch.float64)
        return (drawn * deviation + mean).to(like.dtype)

    return generate


def _fitted(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == like.numel():
        return tensor.reshape(like.shape)
    filled = torch.zeros(like.numel(), dtype=like.dtype, device=like.device)
    common = min(tensor.numel(), like.numel())
    filled[:common] = tensor.reshape(-1)[:common]
    return filled.view(like.shape)


class Recorded:
    """What the peers have put in, in a run that `prism capture --data DIR` kept. Groups and numbers must agree, as they
    do for two runs of one program. A rule with it passes over what torch makes objects of: bytes of a file are not
    unpickled. ValueError where the folder is of another job."""

    def __init__(self, path: str):
        from prismllm import data

        self.path = path
        self.data = data.open(path)

    def check_world(self, world_size: int) -> None:
        if self.data.world_size != world_size:
            raise ValueError(f"'{self.path}' is of {self.data.world_size} ranks; accepted: of {world_size}")

    def __call__(self, communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        c = communication
        position = next(i for i, tensor in enumerate(c.sent_by(peer)) if tensor is like)
        sender = c.members[peer]
        try:
            if c.op == "recv":
                kept = self.data.message(c.group, sender, c.rank, c.tag, c.number)
            else:
                kept = self.data.collective(c.group, c.number)
                if kept.members != c.members or kept.op != c.op:
                    raise ValueError(f"'{self.path}' has {kept!r} of ranks {kept.members}")
            by_destination = c.op.startswith(("reduce_scatter", "all_to_all")) or c.op == "scatter"
            index = c.group_rank * len(c.sent_by(peer)) + position if by_destination else position
            return kept.inputs(sender)[index].torch().view_as(like)
        except KeyError as missing:
            raise ValueError(
                missing.args[0]
                if isinstance(missing.args[0], str)
                else f"'{self.path}' keeps no input {missing.args[0]} of rank {sender} for it"
            ) from None


def recorded(path: str) -> Generator:
    return Recorded(path)
