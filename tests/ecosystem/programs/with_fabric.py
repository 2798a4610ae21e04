"""Lightning Fabric, started by a launcher of processes."""

import os

import lightning_fabric
import torch

fabric = lightning_fabric.Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
fabric.launch()
fabric.seed_everything(0)
model = torch.nn.Linear(4, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
losses = []
for step in range(3):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(10 * step + fabric.global_rank))
    loss = torch.nn.functional.mse_loss(model(x), torch.ones(4, 1))
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    losses.append(fabric.all_reduce(loss.detach()).item())
if fabric.global_rank == 0:
    print("RESULT", losses, flush=True)
fabric.barrier()
