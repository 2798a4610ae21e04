"""A step of a data- and tensor-parallel model that only computes and communicates: prints the seconds of each step as
STEPS [...]. `--fake`: on torch's fake process group, which answers everything with what is there."""

import json
import sys
import time

import torch
import torch.distributed as dist

RANKS, LAYERS, WIDTH, ROWS = 8, 4, 768, 192

if "--fake" in sys.argv:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
else:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, steps = torch.randn(ROWS, WIDTH), []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    optimizer.zero_grad()
    y = x
    for layer in model:
        y = torch.relu(layer(y))
        part = y.detach().clone()
        dist.all_reduce(part)  # as after a row-parallel layer
    y.square().mean().backward()
    for work in [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]:
        work.wait()
    optimizer.step()
    steps.append(time.perf_counter() - start)
print("STEPS", json.dumps(steps), flush=True)
