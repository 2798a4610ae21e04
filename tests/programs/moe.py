"""Expert parallelism: all_to_all_single of counts, then of tokens with uneven splits that depend on the data."""

import torch
import torch.distributed as dist
from common import batch, finish, mean_over_ranks, start
from torch import nn
from torch.nn.functional import mse_loss


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, receive):
        ctx.splits = receive, send
        out = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), receive, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        return AllToAll.apply(grad, *ctx.splits), None, None


args = start(__doc__)
rank, world = dist.get_rank(), dist.get_world_size()
router, tail = nn.Linear(16, world), nn.Linear(16, 1)
torch.manual_seed(50 + rank)
expert = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))  # one expert a rank
shared = [*router.parameters(), *tail.parameters()]
optimizer = torch.optim.SGD([*shared, *expert.parameters()], lr=0.05)

losses, received = [], []
for step in range(args.steps):
    x, y = batch(step, 24, 16)
    gate = router(x).softmax(1)
    weight, choice = gate.max(1)
    order = choice.argsort(stable=True)
    send = torch.bincount(choice, minlength=world)
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send)
    tokens = AllToAll.apply(x[order], send.tolist(), receive.tolist())
    back = AllToAll.apply(expert(tokens), receive.tolist(), send.tolist())
    out = torch.zeros_like(x).index_put((order,), back * weight[order].unsqueeze(1))
    loss = mse_loss(tail(x + out), y)
    optimizer.zero_grad()
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in shared])
    dist.all_reduce(flat)
    for p, grad in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
        p.grad.copy_(grad.view_as(p) / world)
    optimizer.step()
    losses.append(mean_over_ranks(loss))
    received.append(int(receive.sum()))
finish(losses, tokens_received=received)
