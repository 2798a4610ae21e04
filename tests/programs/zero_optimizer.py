"""ZeroRedundancyOptimizer: each rank steps its share of the parameters and broadcasts them; state is consolidated."""

import torch
import torch.distributed as dist
from common import batch, finish, mlp, start, train
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
model = DistributedDataParallel(mlp(32, 3))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)

losses = train(model, optimizer, (batch(step, 16, 32) for step in range(args.steps)))
optimizer.consolidate_state_dict(to=0)
moments = None
if dist.get_rank() == 0:
    moments = sum(state["exp_avg"].abs().double().sum().item() for state in optimizer.state_dict()["state"].values())
finish(losses, first_moments=moments)
