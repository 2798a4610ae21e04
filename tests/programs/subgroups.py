"""Subgroups: a two-dimensional layout by new_group, both dimensions and the world in use at the same time."""

import torch
import torch.distributed as dist
from common import finish, start

args = start(__doc__)
rank, world = dist.get_rank(), dist.get_world_size()
pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
strides = [dist.new_group(list(range(first, world, 2))) for first in (0, 1)]
pair, stride = pairs[rank // 2], strides[rank % 2]
assert dist.get_group_rank(pair, rank) == rank % 2
losses = []
for step in range(args.steps):
    value = torch.tensor([float(rank + 1 + step)])
    dist.all_reduce(value, group=pair)  # (1+2), (3+4), ... at step 0
    assert value.item() == 2 * (rank // 2 * 2) + 3 + 2 * step
    work = dist.all_reduce(value, op=dist.ReduceOp.MAX, group=stride, async_op=True)
    everyone = torch.tensor([1])
    dist.all_reduce(everyone)
    work.wait()
    assert everyone.item() == world
    assert value.item() == 2 * world - 1 + 2 * step
    parts = [torch.empty(1) for _ in range(world // 2)]
    dist.all_gather(parts, torch.tensor([float(rank)]), group=stride)
    assert [part.item() for part in parts] == list(range(rank % 2, world, 2))
    losses.append(value.item())
finish(losses)
