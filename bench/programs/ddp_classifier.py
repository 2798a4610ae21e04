"""A classifier trained with DistributedDataParallel, fed by a DataLoader: the size of job that `prism capture` runs by
the hundred. Its parameters, gradients, momenta and samples are 3.5 MiB of a rank's memory."""

import argparse
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1)
    steps = parser.parse_args().steps
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    widths = [64, 256, 256, 256]
    hidden = [m for i, o in itertools.pairwise(widths) for m in (nn.Linear(i, o), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*hidden, nn.Linear(widths[-1], 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    samples = TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
    loader = DataLoader(samples, batch_size=32, sampler=DistributedSampler(samples, seed=1))
    for _, (x, y) in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
