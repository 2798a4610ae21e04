"""A communication of a rank that runs alone, as the rules see it, and what it brings when its peers put in given
tensors."""

from __future__ import annotations

import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_REDUCTIONS = frozenset(
    ("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor",
     "reduce_scatter_tensor_coalesced")
)  # fmt: skip
_HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.path.dirname(os.path.abspath(torch.__file__))


# Files of torch through which a program communicates; and what in them stands for more than one communication.
_WAYS = ("distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py", os.path.join("distributed", "nn"))
_MORE = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
         "recv_object_list")  # fmt: skip


def _is_communication(code) -> bool:
    return code.co_filename.startswith(TORCH) and any(way in code.co_filename for way in _WAYS) and (
        code.co_name not in _MORE)  # fmt: skip


@dataclass
class Communication:
    """One operation of torch.distributed on one rank. Tensors are one per block: N blocks of an all_to_all_single or an
    all_gather_into_tensor of N members are N tensors. Do not change them."""

    rank: int  # global
    group: str  # the group's key, unique in the job: "0" is the world
    members: list[int]  # global ranks, by group rank
    group_rank: int
    op: str  # "all_reduce", "broadcast", ...: the names of `prism info`
    reduce_op: str  # "sum", "avg", ..., or "none"
    root: int  # group rank, or -1
    peer: int  # group rank of the other end of a message; -1: none, or a receive from anybody
    tag: int
    number: int  # messages: among those to or from this peer with this tag; else in the group; from 0
    iteration: int  # optimizer steps of this rank before it
    description: str  # what the program or DeviceMesh calls the group, e.g. "mesh_tp"; may be empty
    inputs: list[torch.Tensor] = field(repr=False)
    outputs: list[torch.Tensor] = field(repr=False)  # to be filled; now with what the program left there
    nth: int = 0  # what this line of the program and this operation have done before
    source: int = -1  # group rank: of whom a receive from anybody shall be; -1: of one after the other
    caller: Any = field(default=None, repr=False)  # frame of the call; None: of whoever asks
    _frames: list | None = field(default=None, repr=False)
    _drawn: Counter[int] = field(default_factory=Counter, repr=False)  # generators given, by peer

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def tensor(self) -> torch.Tensor | None:
        """The first that goes in, or else comes out."""
        return next(iter([*self.inputs, *self.outputs]), None)

    @property
    def dtype(self) -> torch.dtype | None:
        return None if self.tensor is None else self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        return None if self.tensor is None else tuple(self.tensor.shape)

    @property
    def frames(self) -> list[tuple[str, int, str]]:
        """(file, line, function) of the calls that led here, innermost first; empty in autograd's threads."""
        return [(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) for frame in self.python_frames()]

    def python_frames(self) -> list:
        if self._frames is None:
            frame, self._frames = self.caller or sys._getframe(), []
            while frame is not None:
                if not frame.f_code.co_filename.startswith(_HERE):
                    self._frames.append(frame)
                frame = frame.f_back
        return self._frames

    @property
    def is_programs(self) -> bool:
        """Whether the program communicates by it, and not torch on its behalf: DDP's checks of parameters, objects."""
        inner = next((frame for frame in self.python_frames() if not _is_communication(frame.f_code)), None)
        return inner is not None and not inner.f_code.co_filename.startswith(TORCH)

    @property
    def call_site(self) -> str:
        """ "FILE:LINE in FUNCTION" of the innermost call that is not torch's own, as far as there is one."""
        for file, line, function in self.frames:
            if not file.startswith((TORCH, "<frozen")):
                return f"{file}:{line} in {function}"
        return "autograd" if not self.frames else "{}:{} in {}".format(*self.frames[0])

    def generator(self, peer: int = 0) -> torch.Generator:
        """For random answers: of this rank, communication, peer and tensor, the same in every run."""
        words = (self.rank, self.group, self.op, self.peer, self.tag, self.number, peer, self._drawn[peer])
        self._drawn[peer] += 1
        return torch.Generator().manual_seed(zlib.crc32(repr(words).encode()) << 20)

    def senders(self) -> list[int]:
        """Group ranks of the peers that put something in which this rank gets."""
        others = [member for member in range(self.size) if member != self.group_rank]
        if not self.outputs:
            return []
        if self.op in ("broadcast", "scatter"):
            return [] if self.root == self.group_rank else [self.root]
        if self.op == "recv":
            anybody = others[self.number % len(others)] if others else self.group_rank  # in turn
            return [next((peer for peer in (self.peer, self.source) if peer >= 0), anybody)]
        return others

    def sent_by(self, peer: int) -> list[torch.Tensor]:
        """What `peer` puts in, by size and type: the tensors hold something else."""
        per_member = len(self.outputs) // max(self.size, 1)
        if self.op.startswith(("all_gather", "gather")):
            return self.outputs[peer * per_member : (peer + 1) * per_member]
        if self.op.startswith("all_to_all"):
            return [self.outputs[peer]]
        return self.outputs

    def own(self) -> list[torch.Tensor]:
        """What this rank puts into its own outputs."""
        count = len(self.outputs)
        if self.op.startswith("reduce_scatter"):
            return self.inputs[self.group_rank * count : (self.group_rank + 1) * count]
        if self.op.startswith("all_to_all"):
            return [self.inputs[self.group_rank]]
        if self.op == "scatter":
            return [self.inputs[self.group_rank]] if self.inputs else []
        return self.inputs

    def result(self, contribution: Callable[[int], Sequence[torch.Tensor]], same: bool) -> list[torch.Tensor]:
        """The outputs when each sender puts in contribution(group rank); `same`: they all put in the same."""
        senders = self.senders()
        if self.op in _REDUCTIONS:
            return self._reduced(senders, contribution, same) if self.outputs else []
        outputs = list(self.outputs)
        if self.op in ("broadcast", "scatter", "recv"):
            return list(contribution(senders[0])) if senders else self.own()[: len(outputs)]
        per_member = 1 if self.op.startswith("all_to_all") else len(outputs) // max(self.size, 1)
        first: list[torch.Tensor] = []
        for member in senders:
            part = slice(member * per_member, (member + 1) * per_member)
            alike = same and [one.shape for one in first] == [one.shape for one in outputs[part]]
            first = first if alike else list(contribution(member))
            outputs[part] = first
        if outputs:
            own = slice(self.group_rank * per_member, (self.group_rank + 1) * per_member)
            outputs[own] = [mine.view_as(out) for mine, out in zip(self.own(), outputs[own], strict=True)]
        return outputs

    def _reduced(self, senders: list[int], contribution, same: bool) -> list[torch.Tensor]:
        own = [mine.view_as(out) for mine, out in zip(self.own(), self.outputs, strict=True)]
        if not senders:
            return own
        if same:
            peers = contribution(senders[0])
            return [
                _reduce_many(self.reduce_op, mine, theirs, len(senders))
                for mine, theirs in zip(own, peers, strict=True)
            ]
        from prismllm import _c10d

        each = {member: contribution(member) for member in senders} | {self.group_rank: own}
        plain = lambda tensor: tensor.detach().cpu().contiguous()  # noqa: E731
        return [
            _c10d.reduce_tensors([plain(each[member][i]) for member in sorted(each)], self.reduce_op)
            for i in range(len(own))
        ]

    def __str__(self) -> str:
        parts = [f"group '{self.group}'" + (f" ({self.description})" if self.description else "")]
        if self.root >= 0:
            parts.append(f"root {self.root}")
        if self.op in ("send", "recv"):
            parts.append(f"peer {self.peer}, tag {self.tag}")
        if self.tensor is not None:
            parts.append(f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}")
        return f"{self.op} number {self.number} of rank {self.rank}, {', '.join(parts)}, at {self.call_site}"


def _reduce_many(reduce_op: str, mine: torch.Tensor, theirs: torch.Tensor, times: int) -> torch.Tensor:
    """`mine` reduced with `times` copies of `theirs`."""
    from prismllm import _c10d

    mine, theirs = (tensor.detach().cpu().contiguous() for tensor in (mine, theirs))
    if reduce_op in ("min", "max", "bit_and", "bit_or") or (reduce_op == "bit_xor" and times % 2):
        return _c10d.reduce_tensors([mine, theirs], reduce_op)
    if reduce_op == "bit_xor":
        return mine.clone()
    exact = mine.is_floating_point() or mine.is_complex()
    if mine.dtype == torch.bool or reduce_op not in ("sum", "avg") or (reduce_op == "avg" and not exact):
        return _c10d.reduce_tensors([mine, *[theirs] * times], reduce_op)
    wide = torch.complex128 if mine.is_complex() else torch.float64 if mine.is_floating_point() else torch.int64
    total = mine.to(wide) + theirs.to(wide) * times
    if reduce_op == "avg":
        total = total / (times + 1)
    return total.to(mine.dtype)
