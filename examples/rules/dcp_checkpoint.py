"""torch.distributed.checkpoint under DDP, in a program that loads what it has saved. The ranks' state is the same, so
that each knows alone what the others plan and write; it writes all of it, into a folder of its own."""

import atexit
import copy
import functools
import pickle
import shutil
import tempfile

from prismllm import inputs


@functools.cache
def folder():
    path = tempfile.mkdtemp(prefix="dcp_")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def sent(given):
    """As it arrives on another rank: it shares nothing with what others have sent, which pickle would say once."""
    return pickle.loads(pickle.dumps(given))


class Save:
    """What all ranks do in one call of dcp.save(), whose frame holds the state and the planner."""

    def __init__(self, frame, ranks):
        self.frame, given = frame, frame.f_locals
        self.planner, self.writer = copy.copy(given["planner"]), given["storage_writer"]
        self.local_plans = []
        for rank in range(ranks):
            self.planner.set_up_planner(given["state_dict"], self.writer.storage_meta(), is_coordinator=rank == 0)
            self.local_plans.append(sent(self.writer.prepare_local_plan(self.planner.create_local_plan())))
        plans, self.metadata = self.planner.create_global_plan(list(self.local_plans))
        self.plans = self.writer.prepare_global_plan(plans)
        self.results = {}

    def written(self, rank):
        if rank not in self.results:
            done = self.writer.write_data(self.planner.finish_plan(self.plans[rank]), self.planner)
            done.wait()
            self.results[rank] = sent(done.value())
        return self.results[rank]

    def finished(self, rank, own):
        """The metadata, once all has been written; `own` is what this rank has written."""
        if self.metadata.storage_data is None:
            self.results[rank] = sent(own)
            self.writer.finish(self.metadata, [self.written(member) for member in range(len(self.plans))])
        return self.metadata


def frame_of(communication, *functions):
    return next(frame for frame in communication.python_frames() if frame.f_code.co_name in functions)


saves = []  # the last


def save_of(communication):
    frame = frame_of(communication, "_save_state_dict")
    if not saves or saves[0].frame is not frame:
        saves[:] = [Save(frame, communication.size)]
    return saves[0]


def in_the_plan(communication):
    return frame_of(communication, "reduce_scatter", "all_reduce").f_code.co_name == "reduce_scatter"


def of_peer(communication, peer):
    save = save_of(communication)
    return save.local_plans[peer] if in_the_plan(communication) else save.written(peer)


def of_first(communication):
    save = save_of(communication)
    if in_the_plan(communication):
        return save.plans
    return [save.finished(communication.rank, frame_of(communication, "all_reduce").f_locals["local_data"])]


inputs.objects(lambda communication: [folder()], number=range(2), name="folder")
inputs.peer_objects(of_peer, call_site="* in _save_state_dict", name="what peers plan and write")
inputs.objects(of_first, call_site="* in _save_state_dict", name="what rank 0 makes of it")
