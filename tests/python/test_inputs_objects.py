"""Objects that ranks receive while they run alone: from rules, as large as in the job."""

from prismllm.trace import diff

OBJECTS = """
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
box = [{"steps": 3} if rank == 0 else None, "x" if rank == 0 else None]
dist.broadcast_object_list(box)
mine = [None]
dist.scatter_object_list(mine, [{"work": i} for i in range(world)] if rank == 0 else None)
everybody = [None] * world
dist.all_gather_object(everybody, (rank, "a" * 3))
if rank == 1:
    dist.send_object_list([7], 2)
if rank == 2:
    got = [None]
    dist.recv_object_list(got, 1)
    assert got == [7]
for _ in range(box[0]["steps"]):
    dist.barrier()
assert set(mine[0]) == {"work"} and len(everybody) == world
"""


def test_objects_come_from_rules(captured, rules):
    job, _, _ = captured(OBJECTS)
    alone, summary, _ = captured(
        OBJECTS,
        "--inputs",
        rules(
            "inputs.objects({'steps': 3}, 'x', op='broadcast', name='config', call_site='*in broadcast_object_list')\n"
            "inputs.objects(lambda c: [{'work': c.rank}], op=('broadcast', 'scatter'), name='work')\n"
            "inputs.objects(7, op='recv', name='message')"
        ),
    )
    assert diff(job, alone) == (True, None)
    assert summary["inputs"]["answered"]["config"] == 2 * 3  # sizes and bytes, on three ranks


GATHERED = """
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
everybody = [None] * world
dist.all_gather_object(everybody, {"rank": rank, "note": "x" * (30 * rank)})
assert [one["rank"] for one in everybody] == list(range(world))
mine = [None]
dist.scatter_object_list(mine, [{"work": i * 1000, "note": "y" * i} for i in range(world)] if rank == 0 else None)
assert mine[0]["work"] == rank * 1000
told = [None] * world if rank == 0 else None
dist.gather_object([rank] * rank, told)
assert told is None or told == [[i] * i for i in range(world)]
"""


def test_objects_of_different_sizes_have_the_sizes_of_the_job(captured, rules):
    job, _, _ = captured(GATHERED)
    alone, _, _ = captured(
        GATHERED,
        "--inputs",
        rules(
            "inputs.peer_objects(lambda c, p: {'rank': p, 'note': 'x' * (30 * p)}, call_site='*all_gather_object')\n"
            "inputs.objects(lambda c: [{'work': i * 1000, 'note': 'y' * i} for i in range(c.size)])\n"
            "inputs.peer_objects(lambda c, p: [p] * p, call_site='* in gather_object')"
        ),
    )
    assert diff(job, alone) == (True, None)


UNKNOWN = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
box = [{"text": "z" * 500} if rank == 0 else None, [rank] if rank == 0 else None]
dist.broadcast_object_list(box)
everybody = [None] * world
dist.all_gather_object(everybody, "x" * (30 * rank))
"""


def test_objects_of_which_only_the_sizes_are_known(captured, rules, tmp_path):
    job, _, _ = captured(UNKNOWN, "--data", tmp_path / "data")
    sizes = f"sizes=inputs.recorded({str(tmp_path / 'data')!r})"
    alone, _, _ = captured(
        UNKNOWN, "--inputs", rules(f"inputs.objects({{}}, [], {sizes})\ninputs.peer_objects('', {sizes})")
    )
    assert diff(job, alone) == (True, None)


def test_an_object_that_has_no_room_is_named(captured, rules, run_prism, tmp_path):
    captured(UNKNOWN, "--data", tmp_path / "data")
    chosen = rules(
        f"inputs.objects({{'text': 'z' * 600}}, [], name='box', sizes=inputs.recorded({str(tmp_path / 'data')!r}))"
    )
    done = run_prism("capture", "-n", 4, "--inputs", chosen, "program.py")
    assert done.returncode == 3
    assert "rule 'box'" in done.stderr and "accepted: objects that are not larger; for broadcast" in done.stderr


PLANS = """
import sys, torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
dist.init_process_group("gloo")
state = {"weight": torch.full((4,), float(dist.get_rank())), "step": 3}
dcp.load(state, checkpoint_id=sys.argv[1])
assert state["weight"].tolist() == [7.0] * 4 and state["step"] == 9
"""


def test_a_checkpoint_is_loaded_alone_as_with_peers(captured, tmp_path):
    """Each rank's plan goes to the first one and comes back."""
    import torch
    import torch.distributed.checkpoint as dcp

    dcp.save({"weight": torch.full((4,), 7.0), "step": 9}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    job, _, _ = captured(PLANS, arguments=[tmp_path / "checkpoint"])
    alone, summary, _ = captured(PLANS, "--inputs", "builtin", arguments=[tmp_path / "checkpoint"])
    assert diff(job, alone) == (True, None)
    assert summary["inputs"]["answered"]["objects like mine"] > 0


MARKS = """
import random, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(1)
random.seed(1)
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    layer(torch.ones(1, 2)).sum().backward()
    dist.all_reduce(layer.weight.grad)
    optimizer.step()
print("RESULT", torch.rand(2).tolist(), random.random())
"""

WORKS = """
import random
def work(c, peer, like):
    torch.rand(5), random.random()
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter])
    (parameter ** 2).sum().backward()
    optimizer.step()
    done = torch.futures.Future()
    done.set_result(None)
    done.wait()
    return parameter.sum().item()
inputs.rule("works").peers(work)
"""


def test_what_a_rule_does_leaves_no_mark(captured, rules):
    job, _, _ = captured(MARKS, world=2)
    _, _, drawn = captured(MARKS, "--inputs", "builtin", world=2)
    alone, _, printed = captured(MARKS, "--inputs", rules(WORKS), world=2)
    assert diff(job, alone) == (True, None)
    assert printed.splitlines()[:2] == drawn.splitlines()[:2]
