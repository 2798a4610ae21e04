"""Object collectives, monitored_barrier, a subgroup and its collectives, a group with the ranks in another order."""

import torch
import torch.distributed as dist
from common import finish, start

args = start(__doc__)
rank, world = dist.get_rank(), dist.get_world_size()
config = [{"learning_rate": 0.5, "names": ["a", "b"]}] if rank == 0 else [None]
dist.broadcast_object_list(config, src=0)
assert config[0]["names"] == ["a", "b"]
share = [None]
dist.scatter_object_list(share, [("share", r, "x" * 100 * r) for r in range(world)] if rank == 0 else None, src=0)
assert share[0] == ("share", rank, "x" * 100 * rank)
if dist.get_backend() == "gloo":  # no other backend offers it
    dist.monitored_barrier()

evens = dist.new_group(list(range(0, world, 2)))
backwards = dist.new_group(list(reversed(range(world))))
losses, weight = [], torch.full((), float(rank + 1), dtype=torch.float64)
for step in range(args.steps):
    loss = (weight - step).square()
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "loss": loss.item(), "text": "y" * rank})
    assert [g["rank"] for g in gathered] == list(range(world))
    assert [len(g["text"]) for g in gathered] == list(range(world))
    losses.append(sum(g["loss"] for g in gathered) / world)
    if rank % 2 == 0:
        shared = weight.clone()
        dist.all_reduce(shared, group=evens)
        assert dist.get_world_size(evens) == (world + 1) // 2
        weight = weight - 0.1 * shared
    else:
        assert evens is dist.GroupMember.NON_GROUP_MEMBER
    if step == 1:
        dist.broadcast(weight, src=world - 1, group=backwards)
    collected = [None] * world if rank == 0 else None
    dist.gather_object(rank**2, collected, dst=0)
    assert rank or collected == [r**2 for r in range(world)]
    dist.barrier(group=backwards)
finish(losses)
