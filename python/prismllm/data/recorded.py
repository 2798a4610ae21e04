"""The classes of prismllm.data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prismllm import _data, _graph

WHOLE_NUMBERS = tuple(
    name for name in _graph.DTYPES if name.startswith(("int", "uint", "bool"))
)  # bytes of objects, too
_VIRTUAL_PART = -1
# NumPy has no such types; their bits, then.
_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


@dataclass(frozen=True)
class Tensor:
    """A block of elements in order. `dtype` is the vocabulary's name of their type; where NumPy has no such type
    ("bfloat16", the 8-bit floats) `array` holds their bits as unsigned integers."""

    dtype: str
    array: np.ndarray

    def torch(self):
        """A copy, as a torch tensor of its type."""
        import torch

        tensor = torch.empty(self.array.size, dtype=getattr(torch, self.dtype))
        if self.array.size:  # torch does not view what is empty as another type
            tensor.view(torch.uint8).numpy()[:] = self.array.view(np.uint8)
        return tensor


class Communication:
    """One collective, or one message: what is kept of it. Members are named by their global ranks."""

    def __init__(self, data: RecordedData, index: int):
        c = data.columns
        self._data, self._index = data, index
        group = int(c["comm_group"][index])
        self.group = data.groups[group]
        first, end = c["group_member_offset"][group : group + 2]
        self.members: list[int] = c["group_member"][first:end].tolist()
        self.op = _graph.OPS[c["comm_op"][index]]
        self.dtype = _graph.DTYPES[c["comm_dtype"][index]]
        self.reduce_op = _graph.REDUCE_OPS[c["comm_reduce_op"][index]]
        self.seq = int(c["comm_seq"][index])
        root = int(c["comm_root"][index])
        self.root = self.members[root] if root >= 0 else None
        message = self.op == "send"
        self.source, self.destination = (
            (int(c["comm_source"][index]), int(c["comm_destination"][index])) if message else (None, None)
        )
        self.tag = int(c["comm_tag"][index])

    def __repr__(self) -> str:
        where = f" {self.source} to {self.destination}, tag {self.tag}," if self.op == "send" else ""
        return f"<{self.op}{where} #{self.seq} of group '{self.group}'>"

    @cached_property
    def _blocks(self) -> dict[int, dict[int, int]]:
        """By group rank (-1: the virtual part) and index: number of the tensor."""
        c = self._data.columns
        first, end = c["comm_block_offset"][self._index : self._index + 2]
        blocks: dict[int, dict[int, int]] = {}
        for at in range(int(first), int(end)):
            blocks.setdefault(int(c["block_member"][at]), {})[int(c["block_index"][at])] = int(c["block_tensor"][at])
        return blocks

    def _tensors(self, member: int) -> dict[int, Tensor]:
        return {index: self._data.tensor(number) for index, number in self._blocks.get(member, {}).items()}

    @property
    def senders(self) -> list[int]:
        """Ranks of which inputs are kept."""
        return [self.members[member] for member in sorted(self._blocks) if member != _VIRTUAL_PART]

    def inputs(self, rank: int) -> dict[int, Tensor]:
        """What `rank` put in, by index: destination-major where it has one block per destination."""
        return self._tensors(self.members.index(rank)) if rank in self.members else {}

    def input(self, rank: int, index: int) -> Tensor:
        """One of them, with its content checked. KeyError where it is not kept."""
        return self._data.tensor(self._blocks[self.members.index(rank)][index], check=True)

    def virtual_part(self) -> dict[int, Tensor]:
        """Of a reduction, by index of the result: the inputs of all members but the chosen ranks, reduced in the type
        in which the capture accumulates, not divided for avg."""
        return self._tensors(_VIRTUAL_PART)

    @cached_property
    def digests(self) -> dict[int, str]:
        """By rank: digest() of what it put in."""
        c = self._data.columns
        first, end = c["comm_digest_offset"][self._index : self._index + 2]
        return {
            self.members[c["digest_member"][at]]: f"{c['digest_high'][at]:016x}{c['digest_low'][at]:016x}"
            for at in range(int(first), int(end))
        }


class RecordedData:
    """A folder of recorded tensors. All of its index has been checked; a file with tensors is before its first use."""

    def __init__(self, path: str):
        self.path = path
        self._native = _data.open(os.fsencode(path))
        self.world_size: int = self._native.world_size
        self.for_ranks: list[int] | None = self._native.for_ranks  # None: all that all ranks put in is kept
        self.groups: list[str] = self._native.groups
        self.columns: dict[str, np.ndarray] = self._native.columns()

    def __repr__(self) -> str:
        return f"RecordedData({self.path!r}, {len(self)} communications)"

    def __len__(self) -> int:
        return len(self.columns["comm_seq"])

    def __iter__(self) -> Iterator[Communication]:
        """By group, then collectives by number, then messages by (source, destination, tag, number)."""
        return (Communication(self, index) for index in range(len(self)))

    def collective(self, group: str, seq: int) -> Communication:
        """KeyError where nothing is kept of it."""
        return self._found(group, lambda number: self._native.find_collective(number, seq), f"#{seq}")

    def message(self, group: str, source: int, destination: int, tag: int = 0, seq: int = 0) -> Communication:
        """Message number `seq` from `source` to `destination` with this tag. KeyError where nothing is kept of it."""
        what = f"from {source} to {destination} with tag {tag}, #{seq}"
        return self._found(group, lambda n: self._native.find_message(n, source, destination, tag, seq), what)

    def _found(self, group: str, find, what: str) -> Communication:
        number = self._native.find_group(group)
        index = None if number is None else find(number)
        if index is None:
            raise KeyError(f"'{self.path}' keeps nothing of {what} of group '{group}'")
        return Communication(self, index)

    def tensor(self, number: int, check: bool = False) -> Tensor:
        """One of the distinct tensors. ValueError where its file breaks the format, or (`check`) it is not what was
        recorded; OSError where it cannot be read."""
        dtype, raw = self._native.tensor(number, check)
        return Tensor(dtype, raw.view(_BITS.get(dtype, dtype)))

    def verify(self) -> None:
        """Reads everything: ValueError names the first tensor whose content is not what was recorded."""
        self._native.verify()

    def check_trace(self, trace) -> None:
        """That `trace` (prismllm.load) is of the same job: ValueError names a group or communication that differs."""
        if trace.world_size != self.world_size:
            raise ValueError(f"'{self.path}' is of {self.world_size} ranks, {trace!r} of {trace.world_size}")
        members = {group.name: group.members.tolist() for group in trace.groups}
        known: dict[str, np.ndarray] = {}
        for one in self:
            if members.get(one.group) != one.members:
                raise ValueError(f"group '{one.group}' of '{self.path}' has ranks {one.members}, in {trace!r} "
                                 f"{members.get(one.group, 'it is missing')}")  # fmt: skip
            if one.op == "send":
                continue
            if one.group not in known:
                known[one.group] = _collectives(trace, one.group, one.members[0])
            ops = known[one.group]
            there = _graph.OPS[ops[one.seq]] if one.seq < len(ops) else "nothing"
            if there != one.op:
                raise ValueError(f"{one!r} of '{self.path}' is {there} in {trace!r}")


def _collectives(trace, group: str, rank: int) -> np.ndarray:
    """The operations of the group's collectives by number, as one member recorded them."""
    member = trace.rank(rank)
    slots = [slot for slot, one in enumerate(member.groups) if one.name == group]
    chosen = np.isin(member.comm_group, slots) & ~member.is_op("send") & ~member.is_op("recv")
    return member.comm_op[chosen][np.argsort(member.comm_seq[chosen])]


def digest(inputs: Iterable[np.ndarray]) -> str:
    """What names the contents of one member's inputs, in order: compare with Communication.digests."""
    return _data.inputs_digest([np.ascontiguousarray(one).view(np.uint8).tobytes() for one in inputs])


def open(path: str | os.PathLike) -> RecordedData:
    """Opens a folder that `prism capture --data` has written, by mapping it. OSError where it cannot be read,
    ValueError where it breaks the format."""
    return RecordedData(os.fspath(path))
