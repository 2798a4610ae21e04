"""Objects in the place of tensors: what torch's functions for objects bring. They send sizes first and then bytes; both
are made here from Python objects, as torch makes them, and nothing is read from files."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch.distributed.checkpoint.utils import _DistWrapper

from prismllm.inputs.communication import TORCH, Communication

# Functions of torch that receive objects -> the local that holds what the receiver has in their place.
_RECEIVE = {
    "broadcast_object_list": "object_list",
    "scatter_object_list": "scatter_object_output_list",
    "recv_object_list": "object_list",
    "_broadcast_object": "obj",  # ZeroRedundancyOptimizer's; one, and not in a list
}
_GATHER = ("all_gather_object", "gather_object")
_TAKES_WEIGHTS_ONLY = "weights_only" in inspect.signature(c10d._object_to_tensor).parameters

Sizes = Callable[[Communication, int, torch.Tensor], Any]  # a generator, of the messages that say sizes


def _frame_of(communication: Communication, functions):
    """Of the call of one of these functions of torch, or None."""
    frames = communication.python_frames()
    return next(
        (frame for frame in frames if frame.f_code.co_name in functions and frame.f_code.co_filename.startswith(TORCH)),
        None,
    )


def brings_objects(communication: Communication) -> bool:
    return _frame_of(communication, (*_RECEIVE, *_GATHER)) is not None


def receiving_frame(communication: Communication):
    """Of the call that receives objects by this communication, or None."""
    if not communication.outputs or communication.op not in ("broadcast", "scatter", "recv"):
        return None
    if communication.root == communication.group_rank:
        return None
    return _frame_of(communication, _RECEIVE)


def gathering_frame(communication: Communication):
    """Of the call that gathers objects by this communication, or None."""
    if not communication.outputs or not communication.op.startswith(("all_gather", "gather")):
        return None
    return _frame_of(communication, _GATHER)


# (in the path of a file or as a function of torch's, the rule of prismllm.inputs that is for its objects)
_READY_MADE = (
    (os.path.join("distributed", "pipelining"), "pipeline_activations(*shape)"),
    ("_broadcast_object", "optimizer_states()"),
    ("_save_state_dict", "replicated_checkpoint()"),
)


def ready_made_for(communication: Communication) -> str:
    """Which rule says the objects that it brings."""
    codes = [frame.f_code for frame in communication.python_frames() if frame.f_code.co_filename.startswith(TORCH)]
    for part, name in _READY_MADE:
        if any(part in code.co_filename or part == code.co_name for code in codes):
            return f"inputs.{name}"
    return "inputs.objects(...)"


def own_objects(frame) -> list[Any]:
    """What the receiver has in the place of those to come: None, as a rule. A distributed checkpoint's plan that comes
    back from the first rank: the rank's own."""
    function = frame.f_code.co_name
    mine = frame.f_locals[_RECEIVE[function]]
    if function == "_broadcast_object":
        return [mine]
    if function == "scatter_object_list":
        planning = _planning_frame(frame)
        return [mine[0] if planning is None else planning.f_locals["local_data"]]
    return list(mine)


def _planning_frame(frame):
    """Of the checkpoint's reduce_scatter() that called, or None."""
    while frame is not None and frame.f_code is not _DistWrapper.reduce_scatter.__code__:
        frame = frame.f_back
    return frame


def received(communication: Communication, objects: Sequence[Any], sizes: Sizes | None = None) -> list[torch.Tensor]:
    """The sizes or the bytes of the objects, whichever this communication is to bring. Of scatter_object_list: this
    rank's object, or those of all members. `sizes`: those that it says, where the objects of the real job are larger;
    their bytes are filled up."""
    frame = receiving_frame(communication)
    scattered = frame.f_code.co_name == "scatter_object_list"
    expected = len(own_objects(frame))
    if len(objects) != expected and not (scattered and len(objects) == communication.size):
        raise ValueError(f"it gave {len(objects)} objects; accepted: {expected}")
    (output,) = communication.outputs
    contents = [_bytes_of(frame, one) for one in objects]
    if len(contents) != expected:  # all take as much room as the largest
        longest = max(contents, key=len)
        contents = [longest if communication.op == "broadcast" else contents[communication.group_rank]]
    if output.dtype != torch.uint8:
        return [_said(communication, communication.senders()[0], output, contents, sizes)]
    announced = frame.f_locals.get("object_sizes_tensor")
    room = [output.numel()] if announced is None else announced.tolist()
    return [torch.cat([_filled(one, size) for one, size in zip(contents, room, strict=True)]).reshape(output.shape)]


def gathered(
    communication: Communication, object_of: Callable[[int], Any], sizes: Sizes | None = None
) -> list[torch.Tensor]:
    """The same of what each peer, by group rank, puts in."""
    frame = gathering_frame(communication)

    def contribution(peer: int) -> list[torch.Tensor]:
        (like,) = communication.sent_by(peer)
        content = _bytes_of(frame, object_of(peer))
        if like.dtype != torch.uint8:
            return [_said(communication, peer, like, [content], sizes)]
        return [_filled(content, like.numel()).reshape(like.shape)]

    return communication.result(contribution, same=False)


def _bytes_of(frame, one: Any) -> torch.Tensor:
    if frame.f_code.co_name == "_broadcast_object":
        buffer = io.BytesIO()
        torch.save(one, buffer)
        return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
    how = {"weights_only": frame.f_locals.get("weights_only", False)} if _TAKES_WEIGHTS_ONLY else {}
    return c10d._object_to_tensor(one, torch.device("cpu"), None, **how)[0]


def _said(
    communication: Communication, peer: int, like: torch.Tensor, contents: list[torch.Tensor], sizes: Sizes | None
) -> torch.Tensor:
    needed = torch.tensor([content.numel() for content in contents], dtype=like.dtype).reshape(like.shape)
    if sizes is None:
        return needed
    said = sizes(communication, peer, like)
    if bool((said < needed).any()):
        raise ValueError(
            f"its objects have {needed.flatten().tolist()} bytes, and sizes= says {said.flatten().tolist()}; accepted: "
            "objects that are not larger"
        )
    return said


def _filled(content: torch.Tensor, size: int) -> torch.Tensor:
    """What stands behind a pickle's end is not read."""
    if content.numel() > size:
        raise ValueError(f"the objects have {content.numel()} bytes, and the program expects {size}")
    return torch.cat([content, content.new_zeros(size - content.numel())])
