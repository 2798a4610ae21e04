"""What a recording shows of how a program communicates: issues, completions, and above all its waits."""

import os
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
import worlds

from prismllm import trace


@pytest.fixture(params=["real", "capture"])
def record(request, tmp_path):
    """record(world_size, body) -> [prismllm.trace.Rank], over either route."""

    def run(world_size, body):
        environment = {"PRISM_RECORD": str(tmp_path)}
        if request.param == "capture":
            _, error = worlds.capture(world_size, _with_group, body, environment=environment)
            assert error is None
        else:
            worlds.run_ranks(world_size, _real, body, environment=environment)
        return [trace.load(tmp_path / f"rank-{rank}.prism").rank(rank) for rank in range(world_size)]

    return run


def _with_group(rank, world, body):
    worlds.file_init("gloo", timeout=timedelta(seconds=60))
    body(rank, world)
    dist.barrier()  # Gloo's processes must not leave each other early
    dist.destroy_process_group()


def _real(rank, world, body):
    from prismllm import takeover

    takeover.start_rank()
    _with_group(rank, world, body)
    takeover.finish_rank()


def waits(rank, op="all_reduce"):
    """For each wait node that ends communications of this operation: how many."""
    transfers = np.flatnonzero(rank.is_kind("transfer"))
    of_op = set(transfers[rank.is_op(op)[rank.node_comm[transfers]]].tolist())
    counts = {}
    for source, target in zip(rank.edge_src.tolist(), rank.edge_dst.tolist(), strict=True):
        if source in of_op and rank.is_kind("wait")[target]:
            counts[target] = counts.get(target, 0) + 1
    return [counts[node] for node in sorted(counts)]


def peers(rank, op):
    """Global ranks at the other end of the messages."""
    return [int(rank.peers[slot]) for slot in rank.comm_peer[rank.is_op(op)]]


def _ddp(rank, world):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0005)
    for _ in range(3):
        ddp(torch.ones(1, 16)).sum().backward()


def test_the_wait_at_the_end_of_ddps_backward_is_seen(record):
    for rank in record(2, _ddp):
        # DDP's first backward has one bucket; then it rebuilds them, of 1 KiB, and has two. All of a backward's
        # all-reduces are waited for in one place, its end.
        assert waits(rank) == [1, 2, 2]


def _two_ddps(rank, world):
    first = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    second = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(2):
        second(first(torch.ones(1, 4))).sum().backward()


def test_two_ddp_modules_in_one_backward(record):
    for rank in record(2, _two_ddps):
        assert waits(rank) == [2, 2]


class _Nested(torch.autograd.Function):
    """Runs another backward inside its own, as activation checkpointing does."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        ctx.save_for_backward(x)
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            ctx.module(x).sum().backward()
        return x.grad, None


def _nested(rank, world):
    inner = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(2):
        _Nested.apply(torch.ones(1, 4, requires_grad=True), inner).backward()


def test_a_backward_inside_a_backward(record):
    for rank in record(2, _nested):
        assert waits(rank) == [1, 1]


def _no_futures(rank, world):
    linear = torch.nn.Linear(4, 4)
    linear.weight.register_post_accumulate_grad_hook(lambda weight: dist.all_reduce(weight.grad))
    linear(torch.ones(1, 4)).sum().backward()


def test_a_backward_without_futures_has_only_its_own_waits(record):
    for rank in record(2, _no_futures):
        assert waits(rank) == [1]
        assert rank.is_kind("wait").sum() == 2  # with the barrier's at the end


def _futures(rank, world):
    first = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    second = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    second.wait()
    first.wait()
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda future: future.value()).wait()


def test_waits_in_python_futures_are_seen(record):
    for rank in record(2, _futures):
        assert waits(rank) == [1, 1, 1]


def _messages(rank, world):
    tensor = torch.ones(10)
    if rank == 0:
        dist.send(tensor, 2, tag=4)
    elif rank == 2:
        dist.recv(tensor, 0, tag=4)
    group = dist.new_group([2, 1])
    if rank == 1:
        dist.send(tensor, 2, group=group)
    elif rank == 2:
        dist.recv(tensor, 1, group=group)


def test_messages_name_their_peer_by_its_global_rank(record):
    ranks = record(3, _messages)
    assert peers(ranks[0], "send") == [2]
    assert peers(ranks[1], "send") == [2]
    assert peers(ranks[2], "recv") == [0, 1]
    assert ranks[0].comm_tag[ranks[0].is_op("send")].tolist() == [4]
    assert ranks[0].comm_input_bytes[ranks[0].is_op("send")].tolist() == [40]
    assert ranks[2].comm_output_bytes[ranks[2].is_op("recv")].tolist() == [40, 40]


def _iterations(rank, world):
    import prismllm

    for _ in range(3):
        prismllm.iteration()
        dist.all_reduce(torch.ones(1))


def test_the_program_marks_its_iterations(record):
    for rank in record(2, _iterations):
        assert len(rank.mark_node) == 3


def _refused(rank, world):
    """Calls that are wrong in themselves, on one rank alone, between two that are not."""
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        calls = [
            lambda: dist.broadcast(torch.ones(3), src=99),
            lambda: dist.reduce(torch.ones(3), dst=99),
            lambda: dist.all_gather([torch.ones(3)] * (world + 1), torch.ones(3)),
        ]
        # Behind this one the Gloo of torch 2.11 cannot go on, without prism either.
        if torch.__version__ >= (2, 12) or os.environ.get("PRISM_ROUTE") == "capture":
            calls.append(lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [9] * world, [1] * world))
        for wrong in calls:
            with pytest.raises(RuntimeError):
                wrong()
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == world


def test_a_refused_call_did_not_happen_and_the_program_may_go_on(record):
    for rank in record(2, _refused):
        assert rank.is_op("all_reduce").sum() == 2  # and the barrier that the fixture adds
        assert len(rank.is_op("all_reduce")) == 3
