"""Jobs whose ranks say what each communication gave them, and what a reader makes of the record: for the tests of
recorded tensors. A rank's log: {(group members, what): outputs}, `what` a collective's number or a message's ends."""

from __future__ import annotations

import functools

import collectives
import torch
import torch.distributed as dist
import worlds

WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
REDUCE_OPS = {
    "SUM": collectives.DTYPES,
    "AVG": collectives.DTYPES,
    "PRODUCT": collectives.DTYPES,
    "MIN": collectives.DTYPES,
    "MAX": collectives.DTYPES,
    "BAND": [torch.int64, torch.uint8],
    "BOR": [torch.int64, torch.uint8],
    "BXOR": [torch.int64, torch.uint8],
}


class Log:
    def __init__(self):
        self.outputs, self.numbers = {}, {}

    def add(self, group, outputs):
        """The outputs of the group's next collective, in the order of the blocks that it gives."""
        members = tuple(dist.get_process_group_ranks(group))
        number = self.numbers.get(members, 0)
        self.numbers[members] = number + 1
        self.outputs[members, number] = [tensor.clone() for tensor in outputs]

    def message(self, source, destination, tag, number, tensor):
        key = (tuple(range(dist.get_world_size())), (source, destination, tag, number))
        self.outputs[key] = [tensor.clone()]


def uneven(count, rank, salt):
    """Values that no two ranks share and that no sum represents exactly."""
    return torch.randn(count, generator=torch.Generator().manual_seed(1000 * salt + rank))


def reductions(log, group, rank, world):
    for op, dtypes in REDUCE_OPS.items():
        reduce_op = getattr(dist.ReduceOp, op)
        for dtype in dtypes:
            tensor = collectives.values((3, 5), dtype, rank)
            dist.all_reduce(tensor, reduce_op, group=group)
            log.add(group, [tensor])
            tensor = collectives.values((6,), dtype, rank)
            root = dist.get_process_group_ranks(group)[1]
            dist.reduce(tensor, root, reduce_op, group=group)
            log.add(group, [tensor] if dist.get_rank() == root else [])
            output = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter_tensor(output, collectives.values((4 * world,), dtype, rank), reduce_op, group=group)
            log.add(group, [output])
    for salt, dtype in enumerate((torch.float32, torch.bfloat16, torch.float32)):
        tensor = uneven(2000, rank, salt).to(dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG if salt == 2 else dist.ReduceOp.SUM, group=group)
        log.add(group, [tensor])


def movements(log, group, rank, world):
    members = dist.get_process_group_ranks(group)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for root in members:
            tensor = collectives.values((2, 3), dtype, rank)
            dist.broadcast(tensor, root, group=group)
            log.add(group, [] if root == dist.get_rank() else [tensor])
            gathered = [torch.zeros(3, dtype=dtype) for _ in members] if root == dist.get_rank() else None
            dist.gather(collectives.values((3,), dtype, rank, root), gathered, dst=root, group=group)
            log.add(group, gathered or [])
            output = torch.zeros(3, dtype=dtype)
            blocks = [collectives.values((3,), dtype, r, salt=root) for r in range(world)]
            dist.scatter(output, blocks if root == dist.get_rank() else None, src=root, group=group)
            log.add(group, [output])
        gathered = [torch.zeros(2, 3, dtype=dtype) for _ in members]
        dist.all_gather(gathered, collectives.values((2, 3), dtype, rank), group=group)
        log.add(group, gathered)
        output = torch.zeros(2 * world, 3, dtype=dtype)
        dist.all_gather_into_tensor(output, collectives.values((2, 3), dtype, rank), group=group)
        log.add(group, [output])
        # Rows to each peer; some are 0.
        sends, receives = ([(rank + peer) % 3 for peer in range(world)] for _ in range(2))
        output = torch.zeros(sum(receives), 2, dtype=dtype)
        rows = collectives.values((sum(sends), 2), dtype, rank)
        dist.all_to_all_single(output, rows, receives, sends, group=group)
        log.add(group, [output])
    nothing = torch.zeros(0)
    dist.all_reduce(nothing, group=group)
    log.add(group, [nothing])


def coalesced(log, group, rank, world):
    tensors = [collectives.values((size,), torch.float32, rank) for size in (3, 1, 8)]
    with dist._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    log.add(group, tensors)
    inputs = [collectives.values((size,), torch.float32, rank) for size in (2, 5)]
    outputs = [torch.zeros(size * world) for size in (2, 5)]
    with dist._coalescing_manager(group):
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, tensor, group=group)
    log.add(group, [outputs[t].chunk(world)[member] for member in range(world) for t in range(2)])
    inputs = [collectives.values((size * world,), torch.float32, rank) for size in (2, 5)]
    outputs = [torch.zeros(size) for size in (2, 5)]
    with dist._coalescing_manager(group):
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.reduce_scatter_tensor(output, tensor, group=group)
    log.add(group, outputs)


def objects(log, group, rank, world):
    """Each is two collectives of byte tensors, whose outputs only torch sees."""
    gathered = [None] * world
    dist.all_gather_object(gathered, f"rank {rank}", group=group)  # of equal length: torch pads with what memory holds
    assert gathered == [f"rank {r}" for r in range(world)]
    received = ["hello"] if rank == 0 else [None]
    dist.broadcast_object_list(received, dist.get_process_group_ranks(group)[0], group=group)
    assert received == ["hello"]
    log.numbers[tuple(dist.get_process_group_ranks(group))] += 4


def messages(log, rank, world):
    """A pipeline: two activations to the next rank, gradients back, one with a tag."""
    for number in range(2):
        for source, destination, tag in [(r, r + 1, 0) for r in range(world - 1)] + [
            (r + 1, r, 3) for r in range(world - 1)
        ]:
            tensor = collectives.values((5 * number,), torch.bfloat16, source, number)
            if rank == source:
                dist.send(tensor, destination, tag=tag)
            if rank == destination:
                received = torch.zeros_like(tensor)
                dist.recv(received, source, tag=tag)
                log.message(source, destination, tag, number, received)


def job(rank, world):
    worlds.file_init("gloo")
    log = Log()
    everyone = dist.group.WORLD
    other = dist.new_group([0, 1, 3])
    odd = dist.new_group([1, 3])
    for part in (reductions, movements, coalesced, objects):
        part(log, everyone, rank, world)
    dist.monitored_barrier()
    log.numbers[tuple(range(world))] += 1
    for part in (movements, reductions) if rank in (0, 1, 3) else ():
        part(log, other, dist.get_rank(other), 3)
    if rank in (1, 3):
        movements(log, odd, dist.get_rank(odd), 2)
    messages(log, rank, world)
    dist.destroy_process_group()
    return log.outputs


def scaled_job(rank, world):
    """premul_sum, which only NCCL has."""
    worlds.file_init("nccl")
    log = Log()
    for dtype in (torch.float32, torch.bfloat16):
        tensor = uneven(300, rank, 5).to(dtype)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.3))
        log.add(dist.group.WORLD, [tensor])
    dist.destroy_process_group()
    return log.outputs


def received(one, live, rank, sandbox):
    """What `rank` gets from a communication: from `one`, a record for `sandbox`, and the inputs `live(rank)` of sandbox
    ranks. As bytes."""
    mine = one.members.index(rank)
    if one.op.startswith(("all_reduce", "reduce")):
        return _reduced(one, live, mine, sandbox)
    if one.op == "send":
        wanted = [(one.source, 0)]
    elif one.op == "broadcast":
        wanted = [(one.root, 0)] if rank != one.root else []
    elif one.op == "scatter":
        wanted = [(one.root, mine)]
    elif one.op == "gather":
        wanted = [(member, 0) for member in one.members] if rank == one.root else []
    elif one.op.startswith("all_to_all"):
        wanted = [(member, mine) for member in one.members]
    else:
        count = len(live(rank))
        wanted = [(member, index) for member in one.members for index in range(count)]
    blocks = [(live(member) if member in sandbox else one.inputs(member))[index] for member, index in wanted]
    return b"".join(block.array.tobytes() for block in blocks)


def _reduced(one, live, mine, sandbox):
    inputs = [live(member) for member in one.members if member in sandbox]
    count = len(inputs[0])
    if one.op == "reduce":
        wanted = range(count) if one.members[mine] == one.root else range(0)
    elif one.op.startswith("reduce_scatter"):
        each = count // len(one.members)
        wanted = range(mine * each, (mine + 1) * each)
    else:
        wanted = range(count)
    parts = one.virtual_part()
    result = b""
    for index in wanted:
        tensors = [each[index].torch() for each in inputs]
        dtype = tensors[0].dtype
        ordered = one.reduce_op in ("min", "max") and dtype == torch.float32
        wide = dtype if ordered else WIDE.get(dtype, dtype)
        tensors = ([parts[index].torch()] if parts else []) + [tensor.to(wide) for tensor in tensors]
        assert all(tensor.dtype == wide for tensor in tensors)
        total = functools.reduce(collectives.FOLDS[one.reduce_op], tensors)
        if one.reduce_op == "avg":
            total = total.div(len(one.members), rounding_mode=None if dtype.is_floating_point else "trunc")
        result += raw(total.to(dtype))
    return result


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
