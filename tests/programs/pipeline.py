"""torch.distributed.pipelining: GPipe, 1F1B or interleaved 1F1B over point-to-point messages with metadata exchange."""

import torch
import torch.distributed as dist
from common import batch, finish, start
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.functional import mse_loss

args = start(__doc__, lambda p: p.add_argument("--schedule", choices=["gpipe", "1f1b", "interleaved"], default="1f1b"))
rank, world = dist.get_rank(), dist.get_world_size()
count = 2 * world if args.schedule == "interleaved" else world
parts = []
for index in range(rank, count, world):
    torch.manual_seed(100 + index)
    parts.append(nn.Sequential(nn.Linear(32, 32), nn.Tanh()))
stages = [PipelineStage(part, rank + world * i, count, torch.device("cpu")) for i, part in enumerate(parts)]
if args.schedule == "interleaved":
    schedule = ScheduleInterleaved1F1B(stages, n_microbatches=2 * world, loss_fn=mse_loss)
else:
    kind = ScheduleGPipe if args.schedule == "gpipe" else Schedule1F1B
    schedule = kind(stages[0], n_microbatches=2 * world, loss_fn=mse_loss)
optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)

losses = []
for step in range(args.steps):
    x, _ = batch(step, 4 * world, 32, rank=0)
    per_microbatch = []
    optimizer.zero_grad()
    if rank == world - 1:
        schedule.step(target=torch.sin(x), losses=per_microbatch)
    else:
        schedule.step(*([x] if rank == 0 else []))
    optimizer.step()
    if rank == world - 1:
        losses.append(torch.stack(per_microbatch).double().mean().item())
finish(losses, rank=world - 1, schedule=args.schedule)
