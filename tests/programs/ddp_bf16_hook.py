"""DDP with the bf16 compression hook: half-precision all-reduces whose futures are chained by then()."""

import torch
from common import batch, finish, mlp, start, train
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

args = start(__doc__)
model = DistributedDataParallel(mlp(64, 4), bucket_cap_mb=0.01)
model.register_comm_hook(None, bf16_compress_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.002)

finish(train(model, optimizer, (batch(step, 16, 64) for step in range(args.steps))))
