"""Asynchronous collectives: futures chained by then(), callbacks that issue collectives, waits in another order."""

import torch
import torch.distributed as dist
from common import finish, start

args = start(__doc__)
rank, world = dist.get_rank(), dist.get_world_size()
side = dist.new_group()  # callbacks issue here: the order within a group must be the same on all ranks
value, losses = torch.full((4,), rank + 1.0, dtype=torch.float64), []


def gather_spread(future):
    """Runs where the all-reduce before it completes; issues two more collectives and waits for them there."""
    rows = [torch.empty(4, dtype=torch.float64) for _ in range(world)]
    dist.all_gather(rows, value - future.value()[0] / world, group=side, async_op=True).get_future().wait()
    squares = torch.stack(rows).square().mean(0)
    highest = squares.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=side, async_op=True).get_future().wait()
    assert torch.equal(highest, squares)
    return squares


for _ in range(args.steps):
    first = dist.all_reduce(value.clone(), async_op=True).get_future()
    spread = first.then(gather_spread)
    # Issued after the chain, waited before it.
    second_moment = value.square()
    late = dist.all_reduce(second_moment, async_op=True)
    late.wait()
    mean = dist.all_reduce(value.clone(), async_op=True).get_future().then(lambda f: f.value()[0] / world).wait()
    assert torch.allclose(spread.wait(), second_moment / world - mean.square())
    works = [dist.broadcast(torch.full((2,), float(rank)), src=r, async_op=True) for r in range(world)]
    for work in reversed(works):
        work.wait()
    assert all(f.done() for f in torch.futures.collect_all([first, spread]).wait())
    losses.append(spread.wait().sum().item())
    value = value - 0.5 * (value - mean)
finish(losses)
