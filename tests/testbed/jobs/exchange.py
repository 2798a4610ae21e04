"""Rank 0 sends a tensor to the last rank in each iteration, which counts what its host has received."""

import argparse
import json
import os
import signal
import time

import torch
import torch.distributed as dist


def received_by_host():
    with open("/proc/net/dev") as file:
        return next(int(line.split(":")[1].split()[0]) for line in file if line.strip().startswith("eth0:"))


ap = argparse.ArgumentParser()
ap.add_argument("--bytes", type=int, default=1_000_000)
ap.add_argument("--steps", type=int, default=4)
ap.add_argument("--fault", choices=["", "raise", "killed", "hang", "silent"], default="")
args = ap.parse_args()
dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
tensor, iter_s = torch.full((args.bytes // 4,), float(rank == 0)), []
for step in range(args.steps):
    if step == 2 and rank == last and args.fault:
        if args.fault == "raise":
            raise RuntimeError("the exchange is over")
        if args.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        while args.fault == "hang":
            print("HANGS", flush=True)
            time.sleep(1)
    dist.barrier()
    start = time.monotonic()
    if rank == 0:
        dist.send(tensor, last)
    if rank == last:
        dist.recv(tensor, 0)
    iter_s.append(time.monotonic() - start)
received = torch.tensor(received_by_host())
dist.broadcast(received, last)
if args.fault != "silent":
    print("TIMES " + json.dumps({"rank": rank, "iter_s": iter_s}), flush=True)
if rank == 0:
    names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR")
    told = {"received_bytes": received.item()} | {name: os.environ[name] for name in names}
    print("RESULT " + json.dumps(told), flush=True)
assert tensor.eq(1).all() or rank not in (0, last)
dist.barrier()
dist.destroy_process_group()
