"""FSDP2 (fully_shard): all-gathers in bf16, reduce-scatters in fp32; --replicas R shards in hybrid on an R x S mesh."""

import torch
import torch.distributed as dist
from common import batch, finish, mean_over_ranks, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import mse_loss

args = start(__doc__, lambda p: p.add_argument("--replicas", type=int, default=1))
world = dist.get_world_size()
if args.replicas > 1:
    mesh = init_device_mesh("cpu", (args.replicas, world // args.replicas), mesh_dim_names=("replicate", "shard"))
    policy = MixedPrecisionPolicy()
else:
    mesh = init_device_mesh("cpu", (world,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = nn.Sequential(*(nn.Sequential(nn.Linear(30, 30), nn.Tanh()) for _ in range(3)), nn.Linear(30, 1))
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

losses = []
for step in range(args.steps):
    for micro in range(2):
        model.set_requires_all_reduce(micro == 1)  # replicas meet only in the last micro-batch
        x, y = batch(10 * step + micro, 8, 30)
        loss = mse_loss(model(x).float(), y) / 2
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor().item()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(mean_over_ranks(loss))
finish(losses, gradient_norm=norm)
