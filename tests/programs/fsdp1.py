"""FullyShardedDataParallel: its sharding strategies, bf16, hybrid on a mesh, clipping, and a full state dict."""

import torch
import torch.distributed as dist
from common import batch, finish, mean_over_ranks, mlp, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.functional import mse_loss

args = start(__doc__, steps=2)
CPU = torch.device("cpu")
mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
losses, norms = [], []
for options in [
    {"sharding_strategy": ShardingStrategy.FULL_SHARD},
    {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "use_orig_params": True},
    {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh},
    {"mixed_precision": MixedPrecision(torch.bfloat16, torch.float32)},
]:
    torch.manual_seed(0)
    policy = ModuleWrapPolicy({torch.nn.Linear})
    model = FullyShardedDataParallel(mlp(16, 2), auto_wrap_policy=policy, device_id=CPU, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(args.steps):
        x, y = batch(step, 6, 16)
        optimizer.zero_grad()
        loss = mse_loss(model(x).float(), y)
        loss.backward()
        norms.append(float(model.clip_grad_norm_(0.5)))
        optimizer.step()
        losses.append(mean_over_ranks(loss))
with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    total = sum(value.double().sum().item() for value in model.state_dict().values())
finish(losses, norms=norms, parameters=total)
