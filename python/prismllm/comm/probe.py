"""The program that measures, run by every rank: `-m prismllm.comm.probe FOLDER`, which holds plan.json and a file
`progress`; rank R writes measured-R.json: for each point and each repetition the times [s] at which each round was
issued and was done, since the moment at which all began. All ranks see one clock (they are on one machine). Its own
time limit is beyond that of who has started it, and who knows more (progress.py)."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from prismllm.comm.plan import AFTER_S, LATE_S, PAIRS, WARM_UP
from prismllm.comm.progress import Progress

_PAUSE_S = 0.01  # for all to have heard when to begin, and for the network to be idle


def _issuer(op: str, nbytes: int, group, members: list[int], rank: int, device: str):
    """What issues the operation once and returns what to wait for."""
    whole = max(nbytes // 4, 1)
    part = max(whole // len(members), 1)
    first, root = members[0], rank == members[0]

    def full(count):
        return torch.ones(count, device=device)

    if op in PAIRS:
        other = members[1] if root else members[0]
        out, into = full(whole), full(whole)
        ops = [dist.P2POp(dist.irecv, into, other, group)] if op == "exchange" or not root else []
        ops += [dist.P2POp(dist.isend, out, other, group)] if op == "exchange" or root else []
        return lambda: dist.batch_isend_irecv(ops)
    if op == "crossing":
        place = members.index(rank)
        ops = [dist.P2POp(dist.isend, full(whole), members[place + 1], group)] if place < 2 else []
        ops += [dist.P2POp(dist.irecv, full(whole), members[place - 1], group)] if 0 < place < 3 else []

        def one_by_one():
            works = [op.op(op.tensor, op.peer, group) for op in ops[:1]]
            if len(ops) > 1:
                time.sleep(AFTER_S)
                works.append(ops[1].op(ops[1].tensor, ops[1].peer, group))
            return works

        return one_by_one
    one, all_parts = full(part), full(part * len(members))
    parts = list(all_parts.split(part)) if root else None
    tensor = full(whole)
    issue = {
        "all_reduce": lambda: dist.all_reduce(tensor, group=group, async_op=True),
        "broadcast": lambda: dist.broadcast(tensor, first, group=group, async_op=True),
        "reduce": lambda: dist.reduce(tensor, first, group=group, async_op=True),
        "all_gather": lambda: dist.all_gather_into_tensor(all_parts, one, group=group, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(one, all_parts, group=group, async_op=True),
        "all_to_all": lambda: dist.all_to_all_single(
            torch.empty_like(all_parts), all_parts, group=group, async_op=True
        ),
        "gather": lambda: dist.gather(one, parts, first, group=group, async_op=True),
        "scatter": lambda: dist.scatter(one, parts, first, group=group, async_op=True),
    }[op]
    return lambda: [issue()]


def _together() -> float:
    """A moment to come, the same at all ranks."""
    dist.barrier()
    at = torch.tensor([time.monotonic() + _PAUSE_S], dtype=torch.float64)
    dist.broadcast(at, 0)
    return at.item()


def _repetition(issue, rounds: int, late_s: float, device: str) -> list[list[float]]:
    begin = _together()
    if issue is None:
        return []
    time.sleep(max(begin + late_s - time.monotonic(), 0.0))
    times = []
    for _ in range(rounds):
        works = issue()
        issued = time.monotonic()
        for work in works:
            work.wait()
        if device != "cpu":
            torch.cuda.synchronize()  # there a wait is the stream's
        times.append([issued - begin, time.monotonic() - begin])
    return times


def main() -> None:
    (folder,) = sys.argv[1:]
    with open(os.path.join(folder, "plan.json")) as file:
        plan = json.load(file)
    rank, device = int(os.environ["RANK"]), "cpu"
    if plan["backend"] == "nccl":  # the ranks agree by Gloo when to begin
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    backend = "cpu:gloo,cuda:nccl" if device != "cpu" else plan["backend"]
    limit = timedelta(seconds=plan["limit_s"])
    dist.init_process_group(backend, timeout=limit)
    progress = Progress(os.path.join(folder, "progress"), rank)
    groups = {}
    for members in (members for point in plan["points"] for members in point["groups"]):
        if tuple(members) not in groups:
            groups[tuple(members)] = dist.new_group(members, timeout=limit)
    measured = []
    gc.disable()
    for point in plan["points"]:
        mine = next((members for members in point["groups"] if rank in members), None)
        issue = mine and _issuer(point["op"], point["bytes"], groups[tuple(mine)], mine, rank, device)
        late_s = LATE_S if point["op"] == "crossing" and mine and rank == mine[1] else 0.0
        repetitions = []
        for _ in range(WARM_UP + plan["repeat"]):
            progress.step()
            repetitions.append(_repetition(issue, point["rounds"], late_s, device))
        measured.append(repetitions[WARM_UP:])
    with open(os.path.join(folder, f"measured-{rank}.json"), "w") as file:
        json.dump(measured, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
