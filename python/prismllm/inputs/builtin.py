"""The answers where no rule of the user's fits, and ready-made rules for what large programs need."""

from __future__ import annotations

import functools
from typing import Any

import torch

from prismllm.inputs.communication import Communication
from prismllm.inputs.generators import integers, like_mine, zeros
from prismllm.inputs.objects import Sizes, gathered, gathering_frame, own_objects, received, receiving_frame
from prismllm.inputs.rule import Rule, rule

OBJECTS = "objects like mine"
DEFAULT = "default"


def default(communication: Communication) -> list[torch.Tensor]:
    """Peers that do as this rank does: they put in what it puts in. A rank that receives (from a broadcast's or a
    scatter's root, or a message) gets standard normal numbers, or zeros if they are whole; a broadcast leaves
    what is in the buffer (in memory that the program has not filled: zeros)."""
    generate = like_mine()
    return communication.result(
        lambda peer: [generate(communication, peer, like) for like in communication.sent_by(peer)], same=True
    )


def objects_like_mine(communication: Communication) -> list[torch.Tensor] | None:
    """A rank that receives objects gets those that it has itself in their place (None, as a rule). None where the
    communication brings no objects."""
    frame = receiving_frame(communication)
    return None if frame is None else received(communication, own_objects(frame))


def objects(*given: Any, sizes: Sizes | None = None, name: str = "objects", **conditions) -> Rule:
    """What broadcast_object_list, scatter_object_list or recv_object_list brings: these objects, or what one function
    of the communication gives. `sizes`: how many bytes they are said to have, where those of the real job are larger:
    inputs.recorded() of a run with peers."""
    chosen = rule(name, **conditions)

    def answer(communication: Communication) -> list[torch.Tensor]:
        single = given[0] if len(given) == 1 else None
        made = list(single(communication)) if callable(single) else list(given)
        return received(communication, made, sizes)

    chosen.also = lambda communication: receiving_frame(communication) is not None
    chosen.answer, chosen.recorded = answer, sizes
    return chosen


def peer_objects(given: Any, sizes: Sizes | None = None, name: str = "peers' objects", **conditions) -> Rule:
    """What the peers put into all_gather_object or gather_object: this object, or what a function of the communication
    and the peer's group rank gives. `sizes`: as for objects()."""
    chosen = rule(name, **conditions)

    def answer(communication: Communication) -> list[torch.Tensor]:
        of_peer = functools.partial(given, communication) if callable(given) else lambda peer: given
        return gathered(communication, of_peer, sizes)

    chosen.also = lambda communication: gathering_frame(communication) is not None
    chosen.answer, chosen.recorded = answer, sizes
    return chosen


def pipeline_activations(
    *shape: int, dtype: torch.dtype = torch.float32, name: str = "activations", **conditions
) -> Rule:
    """What the stages of torch.distributed.pipelining tell their neighbours before the first step: that what passes
    between them is one tensor of this shape, a micro-batch's activations (or their gradients)."""
    tensor = torch.empty(shape, dtype=dtype, device="meta")

    def told(communication: Communication) -> list[Any]:
        from torch.distributed.pipelining import _utils

        if not hasattr(_utils, "_StageForwardMeta"):  # torch before 2.13
            return [(tensor,)]
        backward = any(function == "_backward_metadata_inference" for _, _, function in communication.frames)
        about = _utils._TensorMeta(tensor.shape, tensor.stride(), dtype, requires_grad=not backward)
        return [_utils._StageBackwardMeta((about,)) if backward else _utils._StageForwardMeta((about,))]

    return objects(told, name=name, **{"op": "recv", "call_site": "*pipelining?stage.py*", **conditions})


def dataloader_status(name: str = "data loader status", **conditions) -> Rule:
    """App. C.1 of the PrismLLM paper: the broadcast by which the ranks of a tensor-parallel group learn whether rank 0
    has made its data loaders says yes. Narrow it down with rule()'s conditions."""
    return _of_program(rule(name, **{"op": "broadcast", "dtype": _WHOLE, **conditions}).peers(1))


def tokens(vocabulary_size: int, name: str = "tokens", **conditions) -> Rule:
    """App. C.2: token numbers that a rank gets by broadcast or message stay below the vocabulary's size."""
    chosen = {"op": ("broadcast", "recv", "scatter"), "dtype": ("int64", "int32"), **conditions}
    return _of_program(rule(name, **chosen).peers(integers(0, vocabulary_size)))


def zero_data_peers(name: str = "zero-data peers", **conditions) -> Rule:
    """App. C.3: of the counts that the members of a mixture of experts gather, those of the peers are zero, so that the
    split sizes computed from them stay within what this rank has itself."""
    chosen = {"op": ("all_gather*", "all_to_all*"), "dtype": ("int64", "int32"), **conditions}
    return _of_program(rule(name, **chosen).peers(zeros()))


def _of_program(made: Rule) -> Rule:
    """Passes over what torch sends on the program's behalf: DDP's checks of parameters, sizes and bytes of objects."""
    made.also = lambda communication: communication.is_programs
    return made


_WHOLE = ("int64", "int32", "uint8", "bool")
