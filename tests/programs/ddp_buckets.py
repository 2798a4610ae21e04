"""DistributedDataParallel with many small gradient buckets, parameter verification and a DistributedSampler."""

import itertools

import torch
from common import batch, finish, mlp, start, train
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

args = start(__doc__)
model = DistributedDataParallel(mlp(64, 4), bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(*batch(0, 512, 64, rank=0))
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, seed=3))

finish(train(model, optimizer, itertools.islice(loader, args.steps)))
