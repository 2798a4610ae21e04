"""Sums large tensors over all ranks, step after step."""

import argparse

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="of a rank's tensor")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    for step in range(options.steps):
        values = torch.full((options.mib << 18,), float(step))
        dist.all_reduce(values)
        assert values[0] == step * dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
