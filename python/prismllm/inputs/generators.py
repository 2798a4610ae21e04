"""What peers are made to put in. A generator is called as generator(communication, peer, like) and returns a tensor of
the size and type of `like`, or a number for all of its elements. `same` says that all peers put in the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from prismllm.inputs.communication import Communication

Generator = Callable[[Communication, int, torch.Tensor], Any]


def _marked(generator: Generator, same: bool = False, of_peers: bool = False) -> Generator:
    generator.is_generator, generator.same, generator.of_peers = True, same, of_peers
    return generator


def constant(value: float | int | bool) -> Generator:
    """Every element is `value`."""
    return _marked(lambda communication, peer, like: torch.full_like(like, value), same=True)


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

    return _marked(generate, same=True, of_peers=True)


def integers(low: int, high: int) -> Generator:
    """Whole numbers, low <= x < high, of each peer its own, the same in every run."""
    if not -(2**63) <= low < high < 2**63:
        raise ValueError(f"integers({low}, {high}); accepted: low < high, both of 64 bits")

    def generate(communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        drawn = torch.randint(low, high, like.shape, generator=communication.generator(peer))
        return drawn.to(like.dtype)

    return _marked(generate)


def normal(mean: float = 0.0, deviation: float = 1.0) -> Generator:
    """Normally distributed numbers, of each peer its own, the same in every run."""

    def generate(communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        drawn = torch.randn(like.shape, generator=communication.generator(peer), dtype=torch.float64)
        return (drawn * deviation + mean).to(like.dtype)

    return _marked(generate)


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
        self._last: tuple = (None, None)
        try:
            self.data = data.open(path)
        except OSError as reason:
            raise ValueError(
                f"recorded('{path}'): {reason}; accepted: a folder that capture --data has written"
            ) from None

    def check_world(self, world_size: int) -> None:
        if self.data.world_size != world_size:
            raise ValueError(f"'{self.path}' is of {self.data.world_size} ranks; accepted: of {world_size}")

    def _collective(self, c: Communication):
        """The last one is kept: every peer of a communication asks for it."""
        if (c.group, c.number) != self._last[0]:
            kept = self.data.collective(c.group, c.number)
            if kept.members != c.members or kept.op != c.op:
                raise ValueError(f"'{self.path}' has {kept!r} of ranks {kept.members}")
            self._last = ((c.group, c.number), kept)
        return self._last[1]

    def __call__(self, communication: Communication, peer: int, like: torch.Tensor) -> torch.Tensor:
        c = communication
        if c.op == "recv" and c.peer < 0 and c.source < 0:
            raise ValueError(
                f"'{self.path}' does not say which sender a receive from anybody met; give it another rule"
            )
        position = next(i for i, tensor in enumerate(c.sent_by(peer)) if tensor is like)
        sender = c.members[peer]
        try:
            if c.op == "recv":
                kept = self.data.message(c.group, sender, c.rank, c.tag, c.number)
            else:
                kept = self._collective(c)
            by_destination = c.op.startswith(("reduce_scatter", "all_to_all")) or c.op == "scatter"
            index = c.group_rank * len(c.sent_by(peer)) + position if by_destination else position
            return self._like(kept.input(sender, index).torch(), c, like)
        except KeyError as missing:
            if isinstance(missing.args[0], str):
                raise ValueError(missing.args[0]) from None
            chosen = self.data.for_ranks
            why = "" if chosen is None else f"; it was recorded --for-ranks {chosen}, which keeps what these receive"
            raise ValueError(f"'{self.path}' keeps no input of rank {sender} for it{why}") from None

    def _like(self, sent: torch.Tensor, communication: Communication, like: torch.Tensor) -> torch.Tensor:
        return sent.view_as(like)


def recorded(path: str) -> Generator:
    return Recorded(path)
