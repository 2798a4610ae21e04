"""DeepSpeed's ZeRO, stage 1 by default, on the CPU."""

import sys

import deepspeed
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
settings = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
    "zero_optimization": {"stage": int(sys.argv[1]) if len(sys.argv) > 1 else 1},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
losses = []
for step in range(3):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
    loss = mse_loss(engine(x), x.sum(1, keepdim=True))
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item())
if dist.get_rank() == 0:
    print("RESULT", losses, flush=True)
dist.barrier()
dist.destroy_process_group()
