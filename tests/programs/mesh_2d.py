"""FSDP2 over tensor parallelism on a 2 x N/2 mesh; a DTensor in uneven pieces, redistributed; a mesh flattened."""

import torch
import torch.distributed as dist
from common import finish, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy

WORDS, WIDTH = 32, 16
args = start(__doc__)
world = dist.get_world_size()
mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "tensor"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))
split = Shard(1)  # activations between blocks: along the sequence
block = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=split),
    "down": RowwiseParallel(output_layouts=split),
}
plan = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=split),
    **{f"{i}.{name}": style for i in (1, 2) for name, style in block.items()},
    "3": SequenceParallel(),
    "4": ColwiseParallel(input_layouts=split, output_layouts=Shard(-1), use_local_output=False),
}
parallelize_module(model, mesh["tensor"], plan)
for part in (model[1], model[2], model):
    fully_shard(part, mesh=mesh["data"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(args.steps):
    gen = torch.Generator().manual_seed(10 * step + mesh["data"].get_local_rank())
    tokens = torch.randint(0, WORDS, (2, 8), generator=gen)
    optimizer.zero_grad()
    with loss_parallel():
        loss = cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
    optimizer.step()
    losses.append(loss.full_tensor().item() if isinstance(loss, DTensor) else loss.item())

# 7 x 3 over 2 x 2: no two ranks hold pieces of one shape.
uneven = distribute_tensor(torch.arange(21.0).view(7, 3), mesh, [Shard(0), Shard(1)])
turned = uneven.redistribute(mesh, [Shard(1), Shard(0)])
flat = mesh["data", "tensor"]._flatten("all")
pieces = torch.zeros(world, 2)
pieces[dist.get_rank()] = torch.stack([uneven.to_local().sum(), turned.to_local().sum()])
dist.all_reduce(pieces, group=flat.get_group())
finish(losses, pieces=pieces.tolist(), whole=turned.full_tensor().sum().item())
