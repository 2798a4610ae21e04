"""Plain DistributedDataParallel; the backend's name is the program's first option, as users write it."""

import torch
from common import batch, finish, mean_over_ranks, mlp, start
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
model = DistributedDataParallel(mlp(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

losses = []
for step in range(args.steps):
    x, y = batch(step, 16, 16)
    optimizer.zero_grad()
    loss = mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(mean_over_ranks(loss))
finish(losses)
