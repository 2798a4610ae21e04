"""Data loaders with worker processes inside the ranks: persistent, shuffled by a DistributedSampler, and iterable."""

import torch
import torch.distributed as dist
from common import finish, start
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

args = start(__doc__, steps=2)


class Numbers(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return torch.tensor([float(index), torch.rand(()).item()])  # of the worker's own generator


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        yield from range(worker.id + 10 * dist.get_rank(), 40, worker.num_workers)


sampler = DistributedSampler(Numbers(), shuffle=True, seed=3)
loader = DataLoader(Numbers(), batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True)
losses = []
for epoch in range(args.steps):
    sampler.set_epoch(epoch)
    for rows in loader:
        total = rows.double().sum(0)
        dist.all_reduce(total)
        losses += total.tolist()
streamed = torch.tensor([sum(DataLoader(Stream(), batch_size=None, num_workers=2))])
dist.all_reduce(streamed)
finish(losses, streamed=streamed.item())
