"""What all programs of this folder share: options, and the one line that they print. Nothing here knows PrismLLM."""

import argparse
import json

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def start(description, options=lambda parser: None, steps=3):
    """Parses --steps and --backend (a name, "cpu:gloo,cuda:nccl", or "none" to name nothing) and joins the job."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--backend", default="gloo")
    options(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    dist.init_process_group(None if args.backend == "none" else args.backend)
    return args


def finish(losses, rank=0, **more):
    """One rank prints the result; all leave together."""
    if dist.get_rank() == rank:
        print("RESULT " + json.dumps({"world": dist.get_world_size(), "losses": losses, **more}), flush=True)
    dist.barrier()  # Gloo's workers may abort when a peer leaves first
    dist.destroy_process_group()


def mean_over_ranks(loss):
    mean = loss.detach().double().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def train(model, optimizer, batches):
    """The plain training loop; returns the mean loss over the ranks for each batch."""
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean_over_ranks(loss))
    return losses


def batch(step, size, width, rank=None):
    """A regression batch of this rank and step, with a target that can be learned."""
    gen = torch.Generator().manual_seed(1000 * step + (dist.get_rank() if rank is None else rank))
    x = torch.randn(size, width, generator=gen)
    return x, torch.sin(x.sum(1, keepdim=True))


def mlp(width, depth, out=1):
    layers = [m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, out))
