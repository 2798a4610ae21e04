"""Distributed checkpoint, saved in a thread and in a process of each rank that makes a Gloo group of its own, while the
training goes on; what is loaded is the state as it was when saving began."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import batch, finish, mlp, start, train
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard


def main():
    args = start(__doc__)
    model = fully_shard(mlp(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(number):
        return train(model, optimizer, [batch(number, 16, 16)])[0]

    losses = []
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder, src=0)
        for number, kind in enumerate(AsyncCheckpointerType):
            place, group = f"{folder[0]}/{kind.value}", dist.new_group()
            saved = dcp.async_save(
                {"model": model.state_dict()}, checkpoint_id=place, process_group=group, async_checkpointer_type=kind
            )
            expected = step(number)
            saved.result()
            state = {"model": model.state_dict()}
            dcp.load(state, checkpoint_id=place)
            model.load_state_dict(state["model"])
            assert step(number) == expected
            losses.append(expected)
        dist.barrier()
    finish(losses, steps=args.steps)


if __name__ == "__main__":
    main()
