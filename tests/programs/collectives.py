"""Every collective over dtypes and reduce operations; each rank checks its results by arithmetic."""

import functools
import operator

import torch
import torch.distributed as dist
from common import finish, start

args = start(__doc__, lambda p: p.add_argument("--skip", nargs="*", default=[], help="what the backend cannot do"))
rank, world, everyone = dist.get_rank(), dist.get_world_size(), range(dist.get_world_size())
R = dist.ReduceOp
FLOATS, INTEGERS = (
    [torch.float64, torch.float32, torch.bfloat16, torch.float16],
    [torch.int64, torch.int32, torch.uint8],
)
FOLDS = {R.SUM: operator.add, R.PRODUCT: operator.mul, R.MIN: min, R.MAX: max}
BITS = {R.BAND: operator.and_, R.BOR: operator.or_, R.BXOR: operator.xor}


def mine(dtype, r=rank):  # small whole numbers: exact in every dtype
    return torch.tensor([r + 1, 3 - r % 3, 2], dtype=dtype)


def fold(function, dtype):
    return torch.tensor(
        [
            functools.reduce(function, column)
            for column in zip(*(mine(dtype, r).tolist() for r in everyone), strict=True)
        ]
    ).to(dtype)


def equal(got, expected):
    assert got.dtype == expected.dtype and torch.equal(got, expected), f"rank {rank}: {got} != {expected}"


checks = 0
for dtype in [*FLOATS, *INTEGERS]:
    for op, function in {**FOLDS, **(BITS if dtype in INTEGERS else {})}.items():
        expected = fold(function, dtype)
        x = mine(dtype)
        dist.all_reduce(x, op=op)
        equal(x, expected)
        x = mine(dtype)
        dist.reduce(x, dst=1, op=op)
        if rank == 1:
            equal(x, expected)
        checks += 2
    if dtype.is_floating_point and "avg" not in args.skip:
        x = mine(dtype) * world
        dist.all_reduce(x, op=R.AVG)
        equal(x, fold(operator.add, dtype))

    parts, rows = [mine(dtype, r) for r in everyone], torch.stack([mine(dtype, r) for r in everyone])
    got = [torch.empty(3, dtype=dtype) for _ in everyone]
    dist.all_gather(got, mine(dtype))
    equal(torch.stack(got), rows)
    flat = torch.empty(3 * world, dtype=dtype)
    dist.all_gather_into_tensor(flat, mine(dtype))
    equal(flat, rows.flatten())
    x = mine(dtype)
    dist.broadcast(x, src=world - 1)
    equal(x, parts[-1])
    out = torch.empty(3, dtype=dtype)
    dist.reduce_scatter_tensor(out, torch.cat([mine(dtype) + r for r in everyone]))
    equal(out, fold(operator.add, dtype) + rank * world)
    dist.reduce_scatter(out, [mine(dtype) + r for r in everyone])
    equal(out, fold(operator.add, dtype) + rank * world)
    dist.scatter(out, [p + 1 for p in parts] if rank == 0 else None, src=0)
    equal(out, mine(dtype) + 1)
    dist.gather(out, got if rank == 1 else None, dst=1)
    if rank == 1:
        equal(torch.stack(got), rows + 1)
    flat = torch.empty(world, dtype=dtype)
    dist.all_to_all_single(flat, torch.arange(world).to(dtype) + rank)
    equal(flat, torch.arange(world).to(dtype) + rank)
    dist.all_to_all(got, [p.clone() for p in parts])
    equal(torch.stack(got), torch.stack([mine(dtype)] * world))
    splits = [(rank + r) % 2 + 1 for r in everyone]  # uneven, and the same seen from both ends
    flat = torch.empty(sum(splits), dtype=dtype)
    dist.all_to_all_single(flat, torch.cat([torch.full((n,), rank) for n in splits]).to(dtype), splits, splits)
    equal(flat, torch.cat([torch.full((n,), r) for r, n in enumerate(splits)]).to(dtype))
    checks += 9
for value, op, expected in [(rank == 0, R.BOR, True), (rank > 0, R.BAND, False), (rank == 0, R.MAX, True)]:
    if "bool" not in args.skip:
        x = torch.tensor([value])
        dist.all_reduce(x, op=op)
        equal(x, torch.tensor([expected]))
with dist._coalescing_manager():
    tensors = [mine(torch.float32), mine(torch.float32) * 2]
    for x in tensors:
        dist.all_reduce(x)
equal(tensors[1], fold(operator.add, torch.float32) * 2)
dist.barrier()
finish([float(checks)])
