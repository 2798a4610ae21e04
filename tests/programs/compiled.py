"""torch.compile on the ranks: DDP, FSDP2 and a graph with functional collectives inside (traced and differentiated by
AOTAutograd; --compiler inductor makes machine code as well)."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from common import batch, finish, mlp, start, train
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__, lambda p: p.add_argument("--compiler", default="aot_eager"), steps=2)
rank, batches = dist.get_rank(), [batch(step, 6, 10) for step in range(args.steps)]


def compiled(what, **options):
    return torch.compile(what, backend=args.compiler, **options)


torch.manual_seed(0)
model = compiled(DistributedDataParallel(mlp(10, 1)))
losses = train(model, torch.optim.SGD(model.parameters(), lr=0.05), batches)
torch.manual_seed(0)
model = mlp(10, 1)
for layer in (model[0], model[2], model):
    fully_shard(layer)
model = compiled(model)
losses += train(model, torch.optim.SGD(model.parameters(), lr=0.05), batches)


@compiled
def graph(x):
    summed = functional.all_reduce(2 * x, "sum", dist.group.WORLD)
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    return summed + gathered.sum() + functional.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD).sum()


finish(losses, graph=graph(torch.arange(4.0) + rank).tolist())
