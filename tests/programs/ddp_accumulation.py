"""DDP with gradient accumulation under no_sync, BatchNorm buffers broadcast each forward, and unused parameters."""

import contextlib

import torch
import torch.distributed as dist
from common import batch, finish, mean_over_ranks, mlp, start
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), mlp(32, 2))
        self.odd = nn.Linear(32, 1)  # used by odd ranks in odd steps only

    def forward(self, x, step):
        y = self.body(x)
        return y + self.odd(x) if step % 2 and dist.get_rank() % 2 else y


MICRO_BATCHES = 3
args = start(__doc__)
model = DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

losses = []
for step in range(args.steps):
    optimizer.zero_grad()
    for micro in range(MICRO_BATCHES):
        x, y = batch(10 * step + micro, 8, 32)
        with contextlib.nullcontext() if micro == MICRO_BATCHES - 1 else model.no_sync():
            loss = mse_loss(model(x, step), y) / MICRO_BATCHES
            loss.backward()
    optimizer.step()
    losses.append(mean_over_ranks(loss))
running = model.module.body[1].running_mean.double().sum()
dist.reduce(running, dst=0)
finish(losses, running_mean=running.item())
