"""Point-to-point messages: blocking, batched, tagged out of order, from any source, polled by is_completed()."""

import torch
import torch.distributed as dist
from common import finish, start

args = start(__doc__)
rank, world = dist.get_rank(), dist.get_world_size()
right, left = (rank + 1) % world, (rank - 1) % world
value, losses = torch.full((8,), float(rank)), []
for _ in range(args.steps):
    # A batched ring shift.
    incoming = torch.empty(8)
    batch = [dist.P2POp(dist.isend, value, right), dist.P2POp(dist.irecv, incoming, left)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    value = 0.5 * (value + incoming)

    # Two tagged messages, received in the other order.
    first, second = torch.full((2,), rank + 0.25), torch.full((3,), rank + 0.75, dtype=torch.float64)
    sends = [dist.isend(first, right, tag=1), dist.isend(second, right, tag=2)]
    got_second, got_first = torch.empty(3, dtype=torch.float64), torch.empty(2)
    dist.recv(got_second, left, tag=2)
    dist.recv(got_first, left, tag=1)
    for work in sends:
        work.wait()
    assert got_first.tolist() == [left + 0.25] * 2 and got_second.tolist() == [left + 0.75] * 3

    # Blocking pairs: the lower rank sends first.
    peer = rank ^ 1
    if peer < world:
        theirs = torch.empty(8)
        if rank < peer:
            dist.send(value, peer)
            dist.recv(theirs, peer)
        else:
            dist.recv(theirs, peer)
            dist.send(value, peer)
        value = value + 0.1 * (theirs - value)

    # An asynchronous reduction, polled until it is done.
    total = value.double().square().sum()
    work = dist.all_reduce(total, async_op=True)
    while not work.is_completed():
        pass
    work.wait()
    losses.append(total.item())

# Rank 0 hears from everyone, in whatever order they come.
if rank == 0:
    box, sources = torch.empty(1), set()
    for _ in range(world - 1):
        source = dist.recv(box)
        assert box.item() == 10.0 * source
        sources.add(source)
    assert sources == set(range(1, world))
else:
    dist.send(torch.tensor([10.0 * rank]), 0)
finish(losses)
