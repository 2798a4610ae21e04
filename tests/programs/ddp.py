"""Plain DistributedDataParallel; the backend's name is the program's first option, as users write it."""

import torch
from common import batch, finish, mlp, start, train
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
model = DistributedDataParallel(mlp(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

finish(train(model, optimizer, (batch(step, 16, 16) for step in range(args.steps))))
