"""DTensor tensor and sequence parallelism: functional collectives both ways, loss over a sharded vocabulary."""

import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as tp
from common import finish, mean_over_ranks, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard


class Net(nn.Module):
    def __init__(self, width=32, vocabulary=64):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head_norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.head_norm(x + self.mlp(self.norm(x))))


args = start(__doc__)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
plan = {
    "embed": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": tp.SequenceParallel(),
    "mlp": tp.PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "mlp.0": tp.ColwiseParallel(),
    "mlp.2": tp.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "head_norm": tp.SequenceParallel(),
    "head": tp.ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
}
plan["embed"].use_local_output = False  # the residual stream stays a DTensor
model = tp.parallelize_module(Net(), mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(5)

losses = []
for _ in range(args.steps):
    tokens = torch.randint(64, (4, 17), generator=draw)
    with tp.loss_parallel():
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(mean_over_ranks(loss.full_tensor()))
finish(losses)
