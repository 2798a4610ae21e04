"""Ready-made rules for what ranks tell each other as objects when they save their state.

Where the state is the same on all ranks, each knows alone what the others plan and write; it writes all of it, into a
folder of its own, so that it can be loaded again."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch

from prismllm.inputs.builtin import objects, peer_objects
from prismllm.inputs.communication import Communication


def replicated_checkpoint(name: str = "checkpoint", **conditions) -> None:
    """torch.distributed.checkpoint.save() and async_save() of a state that is the same on all ranks (DDP). What a load
    brings needs no rule."""
    conditions = {"call_site": "* in _save_state_dict", **conditions}
    peer_objects(_of_peer, name=f"{name} of peers", **conditions)
    objects(_of_first, name=name, **conditions)


def optimizer_states(name: str = "optimizer states", **conditions) -> None:
    """ZeroRedundancyOptimizer.consolidate_state_dict(): the states of other ranks are of parameters that only these
    step. Each is made by an optimizer of such parameters that takes one step."""
    objects(_state_of_owner, name=name, **{"op": "broadcast", "call_site": "* in _broadcast_object", **conditions})


def _state_of_owner(communication: Communication) -> list[Any]:
    zero = next(frame.f_locals["self"] for frame in communication.python_frames() if "self" in frame.f_locals)
    own = zero.optim.state_dict()["param_groups"]
    groups = []
    for settings, owned in zip(own, zero._partition_parameters()[communication.root], strict=True):
        copies = [torch.zeros_like(parameter) for parameter in owned["params"]]
        for parameter in copies:
            parameter.grad = torch.zeros_like(parameter)
        groups.append({**settings, "params": copies})
    optimizer = type(zero.optim)(groups)
    optimizer.step()
    return [optimizer.state_dict()]


def _sent(given: Any) -> Any:
    """As it arrives on another rank: it shares nothing with what others have sent, which pickle would say once."""
    return pickle.loads(pickle.dumps(given))


class _Save:
    """What all ranks do in one call of dcp.save(), whose frame holds the state and the planner."""

    def __init__(self, frame, ranks):
        self.frame, given = frame, frame.f_locals
        self.planner, self.writer = copy.copy(given["planner"]), given["storage_writer"]
        self.local_plans = []
        for rank in range(ranks):
            self.planner.set_up_planner(given["state_dict"], self.writer.storage_meta(), is_coordinator=rank == 0)
            self.local_plans.append(_sent(self.writer.prepare_local_plan(self.planner.create_local_plan())))
        plans, self.metadata = self.planner.create_global_plan(list(self.local_plans))
        self.plans = self.writer.prepare_global_plan(plans)
        self.results = {}

    def written(self, rank):
        if rank not in self.results:
            done = self.writer.write_data(self.planner.finish_plan(self.plans[rank]), self.planner)
            done.wait()
            self.results[rank] = _sent(done.value())
        return self.results[rank]

    def finished(self, rank, own):
        """The metadata, once all has been written; `own` is what this rank has written."""
        if self.metadata.storage_data is None:
            self.results[rank] = _sent(own)
            self.writer.finish(self.metadata, [self.written(member) for member in range(len(self.plans))])
        return self.metadata


def _frame_of(communication, *functions):
    return next(frame for frame in communication.python_frames() if frame.f_code.co_name in functions)


_saves: list[_Save] = []  # the last


def _save_of(communication: Communication) -> _Save:
    frame = _frame_of(communication, "_save_state_dict")
    if not _saves or _saves[0].frame is not frame:
        _saves[:] = [_Save(frame, communication.size)]
    return _saves[0]


def _in_the_plan(communication: Communication) -> bool:
    return _frame_of(communication, "reduce_scatter", "all_reduce").f_code.co_name == "reduce_scatter"


def _of_peer(communication: Communication, peer: int) -> Any:
    save = _save_of(communication)
    return save.local_plans[peer] if _in_the_plan(communication) else save.written(peer)


def _of_first(communication: Communication) -> list[Any]:
    save = _save_of(communication)
    if _in_the_plan(communication):
        return save.plans
    return [save.finished(communication.rank, _frame_of(communication, "all_reduce").f_locals["local_data"])]
