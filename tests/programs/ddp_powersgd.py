"""DDP with PowerSGD: callbacks of one all-reduce issue the next. Stock Gloo hangs with more than one bucket."""

import torch
from common import batch, finish, mlp, start, train
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__, lambda p: p.add_argument("--bucket-mb", type=float, default=25.0), steps=5)
model = DistributedDataParallel(mlp(64, 4), bucket_cap_mb=args.bucket_mb)
state = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
model.register_comm_hook(state, powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

finish(train(model, optimizer, (batch(step, 16, 64) for step in range(args.steps))))
