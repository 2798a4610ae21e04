"""Objects in the place of tensors: what broadcast_object_list, scatter_object_list and recv_object_list bring. They
send sizes first and then bytes; both are made here from Python objects, as torch makes them, and nothing is read from
files."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

from prismllm.inputs.communication import Communication

# Functions of torch that receive objects -> the local that holds the receiver's list.
_LISTS = {
    "broadcast_object_list": "object_list",
    "scatter_object_list": "scatter_object_output_list",
    "recv_object_list": "object_list",
}
# And further ones that make objects of bytes which have come.
_UNPICKLE = {*_LISTS, "all_gather_object", "gather_object", "_broadcast_object"}
_TAKES_WEIGHTS_ONLY = "weights_only" in inspect.signature(c10d._object_to_tensor).parameters


def brings_objects(communication: Communication) -> bool:
    return any(frame.f_code.co_name in _UNPICKLE for frame in communication.python_frames())


def receiving_frame(communication: Communication):
    """Of the call that receives objects by this communication, or None."""
    if not communication.outputs or communication.op not in ("broadcast", "scatter", "recv"):
        return None
    if communication.root == communication.group_rank:
        return None
    return next((frame for frame in communication.python_frames() if frame.f_code.co_name in _LISTS), None)


def own_objects(frame) -> list[Any]:
    """What the receiver has in the place of those to come: None, as a rule."""
    mine = frame.f_locals[_LISTS[frame.f_code.co_name]]
    return list(mine)[:1] if frame.f_code.co_name == "scatter_object_list" else list(mine)


def encoded(communication: Communication, frame, objects: Sequence[Any]) -> list[torch.Tensor]:
    """The sizes or the bytes of the objects, whichever this communication is to bring."""
    expected = len(own_objects(frame))
    if len(objects) != expected:
        raise ValueError(f"it gave {len(objects)} objects; accepted: {expected}")
    (output,) = communication.outputs
    how = {"weights_only": frame.f_locals.get("weights_only", False)} if _TAKES_WEIGHTS_ONLY else {}
    each = [c10d._object_to_tensor(one, torch.device("cpu"), None, **how) for one in objects]
    if output.dtype != torch.uint8:
        return [torch.cat([size.reshape(-1) for _, size in each]).to(output.dtype).reshape(output.shape)]
    content = torch.cat([content for content, _ in each])
    if content.numel() != output.numel():
        raise ValueError(f"the objects have {content.numel()} bytes, and the program expects {output.numel()}")
    return [content.reshape(output.shape)]
