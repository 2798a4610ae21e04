"""The GPT of gpt3d.py with the choices that a training configuration has, on devices that are slept.

A layer's kernels take --attention-ms and --mlp-ms on the device (prismllm.spin in their place; twice that backward),
beside what this machine needs to compute them. Choices, with the same losses:

    --recompute      keeps of each layer its input only, and runs it again before its backward pass
    --offload        keeps the optimizer's states in the host's memory, and fetches those of a layer when it steps
    --overlap-p2p    sends to and receives from other stages of the pipeline beside computing
    --library fast   a library whose kernels take 0.7 of the time

    torchrun --nproc-per-node 4 examples/tuned_gpt.py --recompute
"""

import argparse
import json
import pathlib

import torch
import torch.distributed as dist
from gpt3d import GradientAllReduce, Grid, Stage, clip_gradients, schedule_1f1b
from tuned_parts import LIBRARIES, DeviceBlock, Neighbours, Optimizer

import prismllm


def train_step(stage, gradients, neighbours, grid, texts):
    """1F1B over the micro-batches, as in gpt3d.py; returns the summed loss (zero except on the last stage)."""
    order = schedule_1f1b(grid.stage, grid.pp, len(texts))
    sources = [grid.previous if kind == "F" else grid.next for kind, _ in order] + [None, None]
    ahead = 2 if neighbours.overlap else 1  # passes: one more input is on its way while a pass runs
    live, total = {}, torch.zeros(())
    for source in sources[:ahead]:
        neighbours.exchange(None, None, source)
    for step, (kind, i) in enumerate(order):
        received = neighbours.take()
        if kind == "F":
            x = None if received is None else received.requires_grad_()
            y = stage(x, texts[i])
            if grid.next is None:
                y = y / len(texts)
                total += y.detach()
            live[i] = (x, y)
            result, target = y.detach(), grid.next
        else:
            x, y = live.pop(i)
            gradients.armed = i == len(texts) - 1
            y.backward(received)
            result, target = (None, None) if x is None else (x.grad, grid.previous)
        neighbours.exchange(result, target, sources[step + ahead])
    neighbours.finish_sending()
    neighbours.coming.clear()
    return total


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--overlap-p2p", action="store_true")
    parser.add_argument("--library", choices=LIBRARIES, default="slow")
    parser.add_argument("--attention-ms", type=float, default=10.0)
    parser.add_argument("--mlp-ms", type=float, default=10.0)
    parser.add_argument("--host-mb-per-s", type=float, default=20.0, help="between device and host")
    for name, value in (("tp", 1), ("pp", 4), ("steps", 6), ("layers", 4), ("width", 64), ("heads", 4), ("seq", 64),
                        ("batch", 16), ("micro-batch", 2)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value, help="as of gpt3d.py")
    return parser.parse_args()


def main():
    DeviceBlock.args = args = options()
    dist.init_process_group("gloo")
    grid = Grid(args.tp, args.pp)
    stage = Stage(args, grid, DeviceBlock)
    gradients, optimizer = GradientAllReduce(stage, grid), Optimizer(stage, args)
    text = torch.tensor(list(pathlib.Path(__file__).with_name("data").joinpath("lighthouse.txt").read_bytes()))
    draw = torch.Generator().manual_seed(7)
    losses = []
    for _ in range(args.steps):
        prismllm.iteration()
        starts = torch.randint(len(text) - args.seq, (args.batch,), generator=draw).chunk(grid.dp)[grid.replica]
        batch = torch.stack([text[i : i + args.seq + 1] for i in starts.tolist()])
        neighbours = Neighbours(grid, (args.micro_batch, args.seq, args.width), args.overlap_p2p)
        optimizer.zero_grad()
        texts = batch.view(-1, args.micro_batch, args.seq + 1)
        total = train_step(stage, gradients, neighbours, grid, texts)
        gradients.finish()
        clip_gradients(stage, grid)
        optimizer.step()
        dist.all_reduce(total, group=grid.pp_group)  # zero but on the last stage
        dist.all_reduce(total, group=grid.dp_group)
        losses.append(total.item() / grid.dp)
    if dist.get_rank() == 0:
        print("RESULT " + json.dumps({"job": "tuned_gpt", "losses": losses}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
