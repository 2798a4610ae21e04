"""Training steps on a rank that pretends to have a peer, before the real ranks are forked.

What torch and Python make at first use (caches, specialised byte code) is then made once and shared, and not by each
rank in pages of its own. No DTensor is among it: torch caches, by mesh and shape, results that know their rank."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
import warnings

_WORLD = 2


def rehearse() -> None:
    """Leaves torch.distributed as it was before. Not for where an accelerator is visible: after a backward here, one
    in the ranks would raise, and what else in torch asks the driver (and so prevents forking) nobody can promise."""
    with _torch_as_it_was(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A version of torch in which something is missing: the ranks then make it themselves.
        with contextlib.suppress(Exception), _pretended_peer():
            _data_parallel()


@contextlib.contextmanager
def _torch_as_it_was():
    import torch.distributed as dist

    level, hook = dist.get_debug_level(), sys.excepthook
    barrier = os.environ.pop("TORCH_DIST_INIT_BARRIER", None)  # would wait for the peer
    backend = getattr(dist.distributed_c10d, "_backend", None)
    dist.set_debug_level(dist.DebugLevel.OFF)  # DETAIL would wait for it, too, over Gloo
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        dist.set_debug_level(level)
        sys.excepthook = hook  # init_process_group() puts one of its own, which names the rank, before it
        if hasattr(dist.distributed_c10d, "_backend"):
            dist.distributed_c10d._backend = backend
        if barrier is not None:
            os.environ["TORCH_DIST_INIT_BARRIER"] = barrier


@contextlib.contextmanager
def _pretended_peer():
    import torch.distributed as dist
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 (makes the backend known)

    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=_WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _data_parallel() -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.utils.data.TensorDataset(torch.zeros(8, 8), torch.zeros(8, dtype=torch.int64))
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=_WORLD, rank=0)
    for x, y in torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler):
        optimizer.zero_grad(set_to_none=True)
        with model.no_sync():  # the pretended peer has no gradients to give
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        mean.item()
    traceback.format_stack()  # as torch.manual_seed() does, for the source lines that it reads
