"""A wide perceptron trained with DistributedDataParallel on random samples. By default 24 million parameters, so that
each rank puts 96 MB of gradients into all-reduces in each step."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--width", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--samples", type=int, default=512, help="of one rank and step")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [m for _ in range(options.layers) for m in (nn.Linear(options.width, options.width), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    for _ in range(options.steps):
        optimizer.zero_grad()
        model(torch.randn(options.samples, options.width)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
