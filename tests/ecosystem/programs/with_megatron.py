"""Megatron-core: a column and a row parallel layer over two ranks, data parallel over the others."""

import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from torch.nn.functional import mse_loss

dist.init_process_group("gloo")
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
torch.manual_seed(0)
common = {
    "config": ModelParallelConfig(tensor_model_parallel_size=2, use_cpu_initialization=True),
    "init_method": torch.nn.init.xavier_normal_,
    "bias": True,
}
up = ColumnParallelLinear(8, 16, gather_output=False, **common)
down = RowParallelLinear(16, 8, input_is_parallel=True, skip_bias_add=False, **common)
parameters = [*up.parameters(), *down.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
losses = []
for step in range(3):
    seed = 10 * step + parallel_state.get_data_parallel_rank()
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    loss = mse_loss(down(torch.tanh(up(x)[0]))[0], x)
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=parallel_state.get_data_parallel_group())
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item())
if dist.get_rank() == 0:
    print("RESULT", losses, flush=True)
parallel_state.destroy_model_parallel()
dist.barrier()
dist.destroy_process_group()
