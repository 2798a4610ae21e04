"""The parts of tuned_gpt.py that a choice of configuration changes: layers, the optimizer, messages between stages."""

import torch
import torch.distributed as dist
from gpt3d import Block
from torch.utils.checkpoint import checkpoint

import prismllm

LIBRARIES = {"slow": 1.0, "fast": 0.7}


class DeviceBlock(Block):
    """A layer whose time is that of the device."""

    args = None  # of the program

    def forward(self, x):
        return checkpoint(self.compute, x, use_reentrant=False) if self.args.recompute else self.compute(x)

    def compute(self, x):
        for name, ms in (("attention", self.args.attention_ms), ("mlp", self.args.mlp_ms)):
            seconds = ms * 1e-3 * LIBRARIES[self.args.library]
            x = prismllm.spin(seconds, backward_s=2 * seconds, x=x, name=name)
        return super().forward(x)


class Optimizer:
    """AdamW, layer by layer; its states in the host's memory where they are offloaded."""

    def __init__(self, stage, args):
        parts = [block.parameters() for block in stage.blocks]
        parts.append(p for name, p in stage.named_parameters() if not name.startswith("blocks."))
        self.parts = [torch.optim.AdamW(part, lr=3e-3) for part in map(list, parts) if part]
        self.args = args

    def step(self):
        for part in self.parts:
            if self.args.offload:
                self.move(part, torch.clone, "fetch")
            part.step()
            if self.args.offload:
                # An array's memory is the host's; a tensor's stands for the device's (docs/memory.md).
                self.move(part, lambda state: torch.from_numpy(state.numpy().copy()), "offload")

    def move(self, part, to, name):
        moved = 0
        for states in part.state.values():
            for key in ("exp_avg", "exp_avg_sq"):
                states[key] = to(states[key])
                moved += states[key].nbytes
        prismllm.spin(moved / (self.args.host_mb_per_s * 1e6), name=name)

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()


class Neighbours:
    """Sends and receives between stages: in step with computing, or beside it."""

    def __init__(self, grid, shape, overlap):
        self.grid, self.shape, self.overlap = grid, shape, overlap
        self.sent, self.coming = [], []

    def exchange(self, result, target, source):
        """Sends `result` on, and asks for the input of an upcoming pass."""
        ops = [] if target is None else [dist.P2POp(dist.isend, result, target)]
        received = None if source is None else torch.empty(self.shape)
        if received is not None:
            ops.append(dist.P2POp(dist.irecv, received, source))
        works = dist.batch_isend_irecv(ops) if ops else []
        arrival = works.pop() if received is not None else None
        self.sent.append((result, works))  # the tensor lives until it is sent
        self.coming.append((received, arrival))
        if not self.overlap:
            self.finish_sending()
            if arrival is not None:
                arrival.wait()

    def take(self):
        received, arrival = self.coming.pop(0)
        if arrival is not None and self.overlap:
            arrival.wait()
        return received

    def finish_sending(self):
        for _, works in self.sent:
            for work in works:
                work.wait()
        self.sent.clear()
