"""ZeroRedundancyOptimizer: each rank steps its share of the parameters and broadcasts them; state is consolidated."""

import torch
import torch.distributed as dist
from common import batch, finish, mean_over_ranks, mlp, start
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
model = DistributedDataParallel(mlp(32, 3))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)

losses = []
for step in range(args.steps):
    x, y = batch(step, 16, 32)
    optimizer.zero_grad()
    loss = mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(mean_over_ranks(loss))
optimizer.consolidate_state_dict(to=0)
moments = None
if dist.get_rank() == 0:
    moments = sum(state["exp_avg"].abs().double().sum().item() for state in optimizer.state_dict()["state"].values())
finish(losses, first_moments=moments)
