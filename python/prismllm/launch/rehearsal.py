"""Training steps on a rank that pretends to have a peer, before the real ranks are forked.

What torch and Python make at first use (caches, specialised byte code, sharding rules) is then made once and shared,
and not by each rank in pages of its own."""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings

_WORLD = 2


def rehearse() -> None:
    """Leaves torch.distributed as it was before. Not for where an accelerator is visible: after a backward here, one
    in the ranks would raise, and what else in torch asks the driver (and so prevents forking) nobody can promise."""
    import torch.distributed as dist

    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.OFF)  # DETAIL would wait for the peer, over Gloo
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for scene in (_data_parallel, _fully_sharded, _tensor_parallel):
                # A version of torch in which something is missing: the ranks then make it themselves.
                with contextlib.suppress(Exception), _pretended_peer():
                    scene()
    finally:
        logging.disable(logging.NOTSET)
        dist.set_debug_level(level)


@contextlib.contextmanager
def _pretended_peer():
    import torch.distributed as dist
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 (makes the backend known)

    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=_WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _model():
    from torch import nn

    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8))


def _train(model, before_backward=contextlib.nullcontext) -> None:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.utils.data.TensorDataset(torch.zeros(8, 8), torch.zeros(8, dtype=torch.int64))
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=_WORLD, rank=0)
    for x, y in torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler):
        optimizer.zero_grad(set_to_none=True)
        with before_backward():
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        mean.item()
    traceback.format_stack()  # as torch.manual_seed() does, for the source lines that it reads


def _data_parallel() -> None:
    import torch

    model = torch.nn.parallel.DistributedDataParallel(_model())
    _train(model, model.no_sync)  # the pretended peer has no gradients to give


def _fully_sharded() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = init_device_mesh("cpu", (_WORLD,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    _train(fully_shard(model, mesh=mesh))


def _tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = _model()
    del model[2]
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    _train(parallelize_module(model, init_device_mesh("cpu", (_WORLD,)), plan))
