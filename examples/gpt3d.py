"""A small GPT trained with tensor x pipeline x data parallelism, written by hand on torch.distributed.

Byte-level language model on examples/data/lighthouse.txt. Ranks form a grid pipeline x data x tensor with the tensor
ranks adjacent. Within a layer, attention heads and MLP columns are split over the tensor group (two all-reduces
forward, two backward); layers are split over pipeline stages, which run 1F1B over batched sends and receives; the
gradients of each layer are all-reduced over the data group while the backward pass of earlier layers still runs.

Weights and batches depend on neither the grid nor the rank, so every layout trains the same model: the losses agree to
rounding, also with those of a single process.

    torchrun --nproc-per-node 16 examples/gpt3d.py --tp 2 --pp 4      # data parallel 2 follows
"""

import argparse
import json
import math
import pathlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Grid:
    """This rank's place among world = pp x dp x tp ranks, and its groups."""

    def __init__(self, tp, pp):
        rank, world = dist.get_rank(), dist.get_world_size()
        if world % (tp * pp):
            raise SystemExit(f"{world} ranks cannot form a grid with --tp {tp} --pp {pp}: not a multiple of {tp * pp}")
        self.tp, self.pp, self.dp = tp, pp, world // (tp * pp)
        ranks = torch.arange(world).view(self.pp, self.dp, self.tp)
        self.stage, self.replica, self.shard = (int(i) for i in (ranks == rank).nonzero()[0])
        self.previous = int(ranks[self.stage - 1, self.replica, self.shard]) if self.stage > 0 else None
        self.next = int(ranks[self.stage + 1, self.replica, self.shard]) if self.stage < pp - 1 else None
        self.tp_group = self._group(ranks.reshape(-1, self.tp))
        self.dp_group = self._group(ranks.transpose(1, 2).reshape(-1, self.dp))
        self.pp_group = self._group(ranks.permute(1, 2, 0).reshape(-1, self.pp))
        self.last_stage = int(ranks[-1, self.replica, self.shard])

    @staticmethod
    def _group(rows):
        groups = [(row, dist.new_group(row)) for row in rows.tolist()]  # every rank takes part in every creation
        return next(group for row, group in groups if dist.get_rank() in row)


class SumGradient(torch.autograd.Function):
    """Identity forward; backward sums the gradient over the tensor group."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class SumOutput(torch.autograd.Function):
    """Sums the partial outputs over the tensor group; backward is the identity."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Block(nn.Module):
    """A transformer layer; this rank holds heads / tp attention heads and 4 x width / tp MLP columns."""

    def __init__(self, index, width, heads, grid):
        super().__init__()
        self.grid, self.heads = grid, heads // grid.tp
        gen = torch.Generator().manual_seed(100 + index)

        def shard(shape, dim):  # this rank's part of a weight that is the same in every layout
            full = torch.randn(shape, generator=gen) / math.sqrt(shape[-1])
            return nn.Parameter(full.chunk(grid.tp, dim)[grid.shard].clone())

        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = shard((3, width, width), 1), shard((width, width), 1)
        self.up, self.down = shard((4 * width, width), 0), shard((width, 4 * width), 1)

    def forward(self, x):
        batch, seq, _ = x.shape
        group = self.grid.tp_group
        h = F.linear(SumGradient.apply(self.norm1(x), group), self.qkv.flatten(0, 1))
        q, k, v = h.view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, -1)
        x = x + SumOutput.apply(F.linear(h, self.out), group)
        h = F.gelu(F.linear(SumGradient.apply(self.norm2(x), group), self.up))
        return x + SumOutput.apply(F.linear(h, self.down), group)


class Stage(nn.Module):
    """The layers of one pipeline stage, with the embedding on the first and the loss on the last."""

    def __init__(self, args, grid, block=Block):
        super().__init__()
        per_stage = args.layers // grid.pp
        layers = range(grid.stage * per_stage, (grid.stage + 1) * per_stage)
        self.blocks = nn.ModuleList(block(i, args.width, args.heads, grid) for i in layers)
        if grid.previous is None:
            torch.manual_seed(1)
            self.tokens, self.places = nn.Embedding(256, args.width), nn.Embedding(args.seq, args.width)
        if grid.next is None:
            torch.manual_seed(2)
            self.head = nn.Sequential(nn.LayerNorm(args.width), nn.Linear(args.width, 256))

    def forward(self, x, text):
        if x is None:
            x = self.tokens(text[:, :-1]) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), text[:, 1:].flatten()) if hasattr(self, "head") else x


class GradientAllReduce:
    """Averages gradients over the data group: one asynchronous all-reduce a layer, as soon as it is ready."""

    def __init__(self, stage, grid):
        self.grid, self.armed, self.pending = grid, False, []
        rest = [p for name, p in stage.named_parameters() if not name.startswith("blocks.")]
        for bucket in [list(block.parameters()) for block in stage.blocks] + ([rest] if rest else []):
            ready = []
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda p, b=bucket, r=ready: self._on_ready(b, r))

    def _on_ready(self, bucket, ready):
        if not self.armed:  # only the last micro-batch completes the sums
            return
        ready.append(1)
        if len(ready) == len(bucket):
            ready.clear()
            flat = torch.cat([p.grad.flatten() for p in bucket])
            self.pending.append((bucket, flat, dist.all_reduce(flat, group=self.grid.dp_group, async_op=True)))

    def finish(self):
        for bucket, flat, work in self.pending:
            work.wait()
            for p, grad in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad.copy_(grad.view_as(p) / self.grid.dp)
        self.pending, self.armed = [], False


def schedule_1f1b(stage, stages, microbatches):
    """Forward and backward passes of one stage in order: [("F", 0), ("F", 1), ("B", 0), ...]."""
    warmup = min(stages - 1 - stage, microbatches)
    order = [("F", i) for i in range(warmup)]
    for i in range(microbatches - warmup):
        order += [("F", warmup + i), ("B", i)]
    return order + [("B", i) for i in range(microbatches - warmup, microbatches)]


def train_step(stage, gradients, grid, texts, width):
    """One pass of the pipeline over the micro-batches; returns the summed loss (zero except on the last stage)."""
    order = schedule_1f1b(grid.stage, grid.pp, len(texts))
    live, total, sending = {}, torch.zeros(()), []
    shape = (texts.shape[1], texts.shape[2] - 1, width)

    def source(kind):
        return grid.previous if kind == "F" else grid.next

    def exchange(result, target, upcoming):
        """Send a result and receive the input of the upcoming pass, in one batch."""
        ops, received = [], None
        if target is not None:
            ops.append(dist.P2POp(dist.isend, result, target))
        if upcoming is not None and source(upcoming) is not None:
            received = torch.empty(shape)
            ops.append(dist.P2POp(dist.irecv, received, source(upcoming)))
        works = dist.batch_isend_irecv(ops) if ops else []
        if received is not None:
            works.pop().wait()
        sending.append((result, works))  # the tensor lives until it is sent
        return received

    received = exchange(None, None, order[0][0])
    for step, (kind, i) in enumerate(order):
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
        received = exchange(result, target, order[step + 1][0] if step + 1 < len(order) else None)
    for _, works in sending:
        for work in works:
            work.wait()
    return total


def clip_gradients(stage, grid, limit=1.0):
    """Scales all gradients so that their norm over the whole model is at most the limit; returns the norm before."""
    # Every tensor rank holds the replicated weights, the sharded ones only in part.
    squares = [
        p.grad.square().sum() / (1 if p.ndim > 1 and "blocks" in name else grid.tp)
        for name, p in stage.named_parameters()
    ]
    total = torch.stack(squares).sum()
    dist.all_reduce(total, group=grid.tp_group)
    dist.all_reduce(total, group=grid.pp_group)
    norm = total.sqrt().item()
    for p in stage.parameters():
        p.grad.mul_(min(1.0, limit / norm))
    return norm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tp", type=int, default=2, help="tensor parallel size")
    parser.add_argument("--pp", type=int, default=4, help="pipeline stages; data parallel size is ranks / (tp x pp)")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="sequences in the global batch")
    parser.add_argument("--micro-batch", type=int, default=2, help="sequences a micro-batch")
    parser.add_argument("--backend", default="gloo")
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    grid = Grid(args.tp, args.pp)
    stage = Stage(args, grid)
    gradients = GradientAllReduce(stage, grid)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=3e-3)
    text = torch.frombuffer(
        bytearray(pathlib.Path(__file__).with_name("data").joinpath("lighthouse.txt").read_bytes()), dtype=torch.uint8
    ).long()
    draw = torch.Generator().manual_seed(7)

    losses, norms = [], []
    for _ in range(args.steps):
        starts = torch.randint(len(text) - args.seq, (args.batch,), generator=draw).chunk(grid.dp)[grid.replica]
        batch = torch.stack([text[i : i + args.seq + 1] for i in starts.tolist()])
        optimizer.zero_grad()
        total = train_step(stage, gradients, grid, batch.view(-1, args.micro_batch, args.seq + 1), args.width)
        gradients.finish()
        norms.append(clip_gradients(stage, grid))
        optimizer.step()
        dist.broadcast(total, src=grid.last_stage, group=grid.pp_group)
        dist.all_reduce(total, group=grid.dp_group)
        losses.append(total.item() / grid.dp)

    if dist.get_rank() == 0:
        result = {
            "job": "gpt3d",
            "tp": grid.tp,
            "pp": grid.pp,
            "dp": grid.dp,
            "losses": losses,
            "gradient_norms": norms,
        }
        print("RESULT " + json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
