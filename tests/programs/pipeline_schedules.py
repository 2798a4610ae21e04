"""Pipelines of two stages a rank: looped BFS, the zero bubble schedules, DualPipeV, and a schedule from a CSV file.
All train the same model, so that their losses are equal."""

import csv
import tempfile

import torch
import torch.distributed as dist
from common import finish, start
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn.functional import mse_loss

WIDTH, MICRO = 12, 8
args = start(__doc__, steps=2)
rank, world = dist.get_rank(), dist.get_world_size()
CPU, last = torch.device("cpu"), 2 * world - 1


def layer(stage):
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def from_csv(stages, microbatches, loss_fn):
    """An interleaved schedule, written to a file by one runtime and read by another."""
    source = schedules.ScheduleInterleaved1F1B(stages, microbatches, loss_fn=loss_fn)
    read = schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=loss_fn)
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        csv.writer(file).writerows(source.pipeline_order[r] for r in sorted(source.pipeline_order))
        file.flush()
        read._load_csv(file.name, format="compute_only")
    return read


def losses_of(schedule, v_shaped):
    mine = [rank, last - rank] if v_shaped else [rank, rank + world]
    stages = [PipelineStage(layer(stage), stage, last + 1, CPU) for stage in mine]
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.05)
    runtime, out = schedule(stages, MICRO, loss_fn=mse_loss), []
    for step in range(args.steps):
        gen = torch.Generator().manual_seed(step)
        x, y = torch.randn(2, 2 * MICRO, WIDTH, generator=gen)
        optimizer.zero_grad()
        losses = []
        runtime.step(*([x] if 0 in mine else []), **({"target": y, "losses": losses} if last in mine else {}))
        optimizer.step()
        total = torch.tensor([sum(loss.item() for loss in losses)], dtype=torch.float64)
        dist.all_reduce(total)  # only one rank has them
        out.append(total.item())
    return out


losses = []
for schedule, v_shaped in [
    (schedules.ScheduleLoopedBFS, False),
    (schedules.ScheduleInterleavedZeroBubble, False),
    (schedules.ScheduleZBVZeroBubble, True),
    (schedules.ScheduleDualPipeV, True),
    (from_csv, False),
]:
    losses += losses_of(schedule, v_shaped)
finish(losses)
