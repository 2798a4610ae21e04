"""Every collective once, as a training job would call it: what the tests of both routes run and compare.

Values are small integers, so that sums and products are exact in every type and any order of summation gives the same
bits: whatever serves these operations must agree bit for bit."""

from __future__ import annotations

import torch
import torch.distributed as dist
import worlds

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
]
GLOO_HAS_ALL_TO_ALL = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)  # of lists; not in 2.11
REDUCE_OPS = ["SUM", "PRODUCT", "MIN", "MAX"]
BIT_OPS = ["BAND", "BOR", "BXOR"]
# What each reduction does with two tensors; avg divides afterwards.
FOLDS = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
}


def values(shape, dtype, rank, salt=0):
    """Elements 1 to 4, different on each rank."""
    count = 1
    for extent in shape:
        count *= extent
    return ((torch.arange(count) * 7 + rank * 3 + salt) % 4 + 1).reshape(shape).to(dtype)


def reductions(rank, world):
    out = {}
    for dtype in DTYPES:
        ops = REDUCE_OPS + ([] if dtype.is_floating_point else BIT_OPS)
        for op in ops:
            name, reduce_op = f"{str(dtype)[6:]}/{op}", getattr(dist.ReduceOp, op)
            tensor = values((3, 5), dtype, rank)
            dist.all_reduce(tensor, reduce_op)
            out[f"all_reduce/{name}"] = [tensor]
            tensor = values((6,), dtype, rank)
            dist.reduce(tensor, world - 1, reduce_op)
            out[f"reduce/{name}"] = [tensor] if rank == world - 1 else []
            output = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter_tensor(output, values((4 * world,), dtype, rank), reduce_op)
            out[f"reduce_scatter_tensor/{name}"] = [output]
    return out


def movements(rank, world):
    out = {}
    for dtype in DTYPES:
        name = str(dtype)[6:]
        tensor = values((2, 3), dtype, rank)
        dist.broadcast(tensor, 1)
        out[f"broadcast/{name}"] = [tensor]
        gathered = [torch.zeros(2, 3, dtype=dtype) for _ in range(world)]
        dist.all_gather(gathered, values((2, 3), dtype, rank))
        out[f"all_gather/{name}"] = gathered
        output = torch.zeros(2 * world, 3, dtype=dtype)
        dist.all_gather_into_tensor(output, values((2, 3), dtype, rank))
        out[f"all_gather_into_tensor/{name}"] = [output]
        gathered = [torch.zeros(3, dtype=dtype) for _ in range(world)] if rank == 1 else None
        dist.gather(values((3,), dtype, rank), gathered, dst=1)
        out[f"gather/{name}"] = gathered or []
        output = torch.zeros(3, dtype=dtype)
        dist.scatter(output, [values((3,), dtype, r, salt=1) for r in range(world)] if rank == 0 else None, src=0)
        out[f"scatter/{name}"] = [output]
        output = torch.zeros(world * 2, dtype=dtype)
        dist.all_to_all_single(output, values((world * 2,), dtype, rank))
        out[f"all_to_all_single/{name}"] = [output]
        if GLOO_HAS_ALL_TO_ALL:
            outputs = [torch.zeros(2, 2, dtype=dtype) for _ in range(world)]
            dist.all_to_all(outputs, [values((2, 2), dtype, rank, salt=r) for r in range(world)])
            out[f"all_to_all/{name}"] = outputs
        if rank == 0:
            dist.send(values((4,), dtype, rank), world - 1, tag=5)
        if rank == world - 1:
            output = torch.zeros(4, dtype=dtype)
            dist.recv(output, 0, tag=5)
            out[f"recv/{name}"] = [output]
    return out


def shapes(rank, world):
    """Uneven, empty and strided tensors."""
    out = {}
    sends = [(rank + peer) % 3 for peer in range(world)]  # rows to each peer; some are 0
    receives = [(peer + rank) % 3 for peer in range(world)]
    output = torch.zeros(sum(receives), 2)
    dist.all_to_all_single(output, values((sum(sends), 2), torch.float32, rank), receives, sends)
    out["all_to_all_single/uneven"] = [output]
    nothing = torch.zeros(0)
    dist.all_reduce(nothing)
    out["all_reduce/empty"] = [nothing]
    strided = values((4, 6), torch.float32, rank).t()
    dist.broadcast(strided, 0)
    out["broadcast/transposed"] = [strided.contiguous()]
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    out["all_reduce/scalar"] = [scalar]
    return out


def coalesced(rank, world):
    out = {}
    tensors = [values((size,), torch.float32, rank) for size in (3, 1, 8)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    out["all_reduce_coalesced"] = tensors
    inputs = [values((size,), torch.float32, rank) for size in (2, 5)]
    outputs = [torch.zeros(size * world) for size in (2, 5)]
    with dist._coalescing_manager():
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    out["all_gather_into_tensor_coalesced"] = outputs
    inputs = [values((size * world,), torch.float32, rank) for size in (2, 5)]
    outputs = [torch.zeros(size) for size in (2, 5)]
    with dist._coalescing_manager():
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.reduce_scatter_tensor(output, tensor)
    out["reduce_scatter_tensor_coalesced"] = outputs
    right, left = (rank + 1) % world, (rank - 1) % world
    received = torch.zeros(3)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, values((3,), torch.float32, rank), right),
            dist.P2POp(dist.irecv, received, left),
        ]
    )
    for work in works:
        work.wait()
    out["batch_isend_irecv"] = [received]
    return out


def asynchronous(rank, world):
    out = {}
    tensors = [values((10,), torch.float32, rank, salt) for salt in range(5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait()
    out["async/waited in reverse"] = tensors
    tensor = values((10,), torch.float32, rank)
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: [future.value()[0] * 2])
    out["async/future then"] = doubled.wait()
    tensor = values((10,), torch.float32, rank)
    value = dist.all_reduce(tensor, async_op=True).get_future().wait()
    out["async/future value"] = list(value)
    tensor = values((10,), torch.float32, rank)
    dist.all_reduce(tensor, async_op=True)  # nobody keeps the work
    dist.barrier()
    dist.all_reduce(torch.zeros(1))
    import torch.distributed._functional_collectives as functional

    total = functional.all_reduce(values((4,), torch.float32, rank), "sum", dist.group.WORLD)
    out["functional/all_reduce"] = [functional.wait_tensor(total)]
    gathered = functional.all_gather_tensor(values((2, 2), torch.float32, rank), 0, dist.group.WORLD)
    out["functional/all_gather"] = [functional.wait_tensor(gathered)]
    return out


def objects_and_groups(rank, world):
    out = {}
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    out["all_gather_object"] = [torch.tensor([entry["rank"] for entry in gathered])]
    received = [None, None]
    if rank == 0:
        received = ["hello", [1, 2, 3]]
    dist.broadcast_object_list(received, 0)
    out["broadcast_object_list"] = [torch.tensor(received[1])]
    halves = [dist.new_group(list(range(half * world // 2, (half + 1) * world // 2))) for half in range(2)]
    mine = halves[0 if rank < world // 2 else 1]
    tensor = values((3,), torch.float32, rank)
    dist.all_reduce(tensor, group=mine)
    out["new_group/all_reduce"] = [tensor]
    reversed_group = dist.new_group(list(range(world))[::-1])
    tensor = values((3,), torch.float32, rank)
    dist.broadcast(tensor, src=0, group=reversed_group)
    out["reversed group/broadcast"] = [tensor]
    dist.barrier(mine)
    if dist.get_backend() == "gloo":
        dist.monitored_barrier()
    return out


PROGRAMS = [reductions, movements, shapes, coalesced, asynchronous, objects_and_groups]


def run_all(rank, world):
    out = {}
    for program in PROGRAMS:
        out.update(program(rank, world))
    return {name: [tensor.clone() for tensor in tensors] for name, tensors in out.items()}


def job(rank, world, name="gloo"):
    """A rank that does it all, with the backend `name`."""
    worlds.file_init(name)
    out = run_all(rank, world)
    dist.barrier()  # Gloo's processes must not leave each other early
    dist.destroy_process_group()
    return out


def differences(left, right):
    """Names whose results are not the same bits, of two ranks' answers."""
    assert left.keys() == right.keys()
    return [
        name
        for name in left
        if len(left[name]) != len(right[name])
        or any(
            a.dtype != b.dtype or a.shape != b.shape or not torch.equal(_bits(a), _bits(b))
            for a, b in zip(left[name], right[name], strict=True)
        )
    ]


def _bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)
