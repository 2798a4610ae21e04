"""DDP with a static graph, with unused parameters, with uneven inputs (join), and local SGD with a hierarchical and a
periodic averager."""

from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.distributed.algorithms.model_averaging.averagers as averagers
import torch.distributed.algorithms.model_averaging.hierarchical_model_averager as hierarchical
from common import batch, finish, mlp, start
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
rank, world = dist.get_rank(), dist.get_world_size()


class OneOfTwo(nn.Module):
    """Which half of it takes part depends on the rank and the step."""

    def __init__(self):
        super().__init__()
        self.halves, self.calls = nn.ModuleList([nn.Linear(10, 1), nn.Linear(10, 1)]), 0

    def forward(self, x):
        self.calls += 1
        return self.halves[(self.calls + rank) % 2](x)


def wrapped(model=None, **options):
    torch.manual_seed(0)
    return DistributedDataParallel(mlp(10, 2) if model is None else model(), **options)


def train(model, optimizer, steps=args.steps, after=lambda: None):
    """The sum of all parameters: any wrong gradient shows in it."""
    for step in range(steps):
        x, y = batch(step, 6, 10)
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()
        after()
    return sum(parameter.double().sum().item() for parameter in model.parameters())


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


sums = []
for model in [
    wrapped(static_graph=True, gradient_as_bucket_view=True),
    wrapped(OneOfTwo, find_unused_parameters=True),
]:
    sums.append(train(model, sgd(model)))

model = wrapped()
model.register_comm_hook(None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook))
sums.append(train(model, sgd(model)))

model = wrapped()
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
with Join([model, optimizer]):
    train(model, optimizer, steps=1 + rank)
sums.append(sum(parameter.double().sum().item() for parameter in model.parameters()))

model, (pair, _) = wrapped(), dist.new_subgroups(2)
state = post_localSGD_hook.PostLocalSGDState(None, pair, start_localSGD_iter=1)
model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(sgd(model), averagers.PeriodicModelAverager(period=2, warmup_steps=1))
sums.append(train(model, optimizer, steps=4))

torch.manual_seed(0)
model = mlp(10, 2)
averager = hierarchical.HierarchicalModelAverager(OrderedDict([(2, 2), (4, world)]), warmup_steps=0)
sums.append(train(model, sgd(model), 5, lambda: averager.average_parameters(model.parameters())))
finish(sums)
