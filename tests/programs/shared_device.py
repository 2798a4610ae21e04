"""A small DDP training whose ranks share a pretended device: argv[1] is the folder that the fake device reads.

Each rank "allocates" argv[2] bytes, notes moments in which it computes, and fails where the ranks that are on the
device hold more than argv[3] bytes."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from prismllm import _c10d

FOLDER, BYTES, CAPACITY = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
STEPS = 3


def on_the_host() -> set[int]:
    """Processes whose last swap was out of the device."""
    out = {}
    log = FOLDER / "log"
    for line in log.read_text().splitlines() if log.exists() else []:
        move = json.loads(line)
        if not move.get("error"):
            out[move["pid"]] = move["call"] == "swap_out"
    return {pid for pid, is_out in out.items() if is_out}


def allocate() -> None:
    _c10d.note_device_use()
    (FOLDER / str(os.getpid())).write_text(f"0 {BYTES}")
    here = [file for file in FOLDER.iterdir() if file.name.isdigit() and int(file.name) not in on_the_host()]
    used = sum(int(file.read_text().split()[1]) for file in here)
    if used > CAPACITY:
        raise MemoryError(f"out of memory on the device: {used} of {CAPACITY}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    moments = []  # written at the end: a rank that sleeps in a file lends its slot, and may leave the device
    torch.manual_seed(0)
    allocate()
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        moments.append(time.monotonic_ns())
        x = torch.full((4, 8), float(rank + step))
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        moments.append(time.monotonic_ns())
        loss.backward()
        moments.append(time.monotonic_ns())
        optimizer.step()
        moments.append(time.monotonic_ns())
        total = loss.detach().clone()
        dist.all_reduce(total)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"RESULT {rank} {total.item():.9f} {digest[:16]}")
    (FOLDER / f"moments-{os.getpid()}").write_text(" ".join(map(str, moments)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
