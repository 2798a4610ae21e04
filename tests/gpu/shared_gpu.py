"""Ranks of a capture that share one GPU. Each holds `--part` of the device's memory in one tensor whose values are its
own, trains a small DDP model beside it, and checks the tensor after each turn of the others. Prints, on rank 0, RESULT
{"parameters", "expected", "held_bytes"}: the sum of the trained parameters, and the same of one process that sees the
whole batch."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS, ROWS = 4, 8


def model_on(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)


def batch_of(rank: int, step: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(ROWS, 32, generator=generator).to(device)


def trained(module: nn.Module, batches) -> nn.Module:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for x in batches:
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
        yield module


def total(module: nn.Module) -> float:
    return sum(parameter.double().abs().sum().item() for parameter in module.parameters())


def hold(part: float, device: torch.device, fake: str) -> torch.Tensor:
    """`part` of the device's memory; of a fake device a few values, and a note of what it is to hold."""
    if device.type == "cuda":
        _, memory = torch.cuda.mem_get_info(device)
        return torch.empty(int(memory * part) // 4, dtype=torch.float32, device=device)
    if fake:
        from prismllm import _c10d

        _c10d.note_device_use()
        script = json.loads(Path(fake).read_text())
        Path(script["folder"], str(os.getpid())).write_text(f"0 {int(script['capacity_bytes'] * part)}")
    return torch.empty(1024)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--part", type=float, default=0.0)
    parser.add_argument("--fake", default="")
    args = parser.parse_args()
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device(args.device)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    held = hold(args.part, device, args.fake)
    held.fill_(rank + 1)

    ddp = nn.parallel.DistributedDataParallel(model_on(device))
    for _ in trained(ddp, (batch_of(rank, step, device) for step in range(STEPS))):
        everyone = torch.tensor([float(rank)], device=device)
        dist.all_reduce(everyone)
        assert everyone.item() == world * (world - 1) / 2
        low, high = torch.aminmax(held)
        assert low.item() == high.item() == rank + 1, "the held tensor has changed"
    gathered = [torch.empty(1, device=device) for _ in range(world)]
    dist.all_gather(gathered, torch.tensor([float(rank)], device=device))
    assert [one.item() for one in gathered] == list(range(world))
    dist.barrier()
    if rank == 0:
        alone = model_on(torch.device("cpu"))
        whole = (torch.cat([batch_of(r, step, torch.device("cpu")) for r in range(world)]) for step in range(STEPS))
        for _ in trained(alone, whole):
            pass
        result = {"parameters": total(ddp), "expected": total(alone), "held_bytes": held.nbytes}
        print("RESULT " + json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
