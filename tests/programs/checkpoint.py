"""Distributed checkpoint: save, train on, load, train again; the second time must repeat the first bit by bit."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import batch, finish, mlp, start, train
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
model = DistributedDataParallel(mlp(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def steps(first):
    return train(model, optimizer, (batch(step, 16, 16) for step in range(first, first + args.steps)))


folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder, src=0)
losses = steps(0)
weights, state = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder[0])
first = steps(args.steps)
weights, state = get_state_dict(model, optimizer)
saved = {"model": weights, "optimizer": state}
dcp.load(saved, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
assert steps(args.steps) == first
dist.barrier()
if dist.get_rank() == 0:
    import shutil

    shutil.rmtree(folder[0])
finish(losses + first)
