"""Training iterations, as they are found in what a program did."""

import json

import pytest

PROGRAM = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(int(sys.argv[1])):
    for micro_batch in range(6):
        y = model(torch.ones(2, 8))
        dist.all_reduce(y.detach())
        y.square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("command", ["record", "capture"])
@pytest.mark.parametrize(("steps", "iterations"), [(1, 0), (3, 3)])
def test_micro_batches_are_told_from_iterations_by_the_optimizer(run_prism, tmp_path, command, steps, iterations):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_prism(command, "--quiet", "-n", 2, "-o", "run.prism", "program.py", steps)
    assert done.returncode == 0, done.stderr
    info = json.loads(run_prism("info", "--quiet", "--json", "-", "run.prism").stdout)
    assert info["iterations"] == iterations


def test_each_step_of_an_optimizer_is_a_span_and_ends_an_iteration(run_prism, tmp_path):
    from prismllm.trace import load

    (tmp_path / "program.py").write_text(PROGRAM)
    assert run_prism("record", "--quiet", "-n", 2, "-o", "run.prism", "program.py", 3).returncode == 0
    rank = load(tmp_path / "run.prism").rank(0)
    names = [rank.name_of(node) for node in range(len(rank.node_kind))]
    steps = [node for node, name in enumerate(names) if name == "optimizer"]
    assert len(steps) == 3
    assert [int(mark) - 1 for mark in rank.mark_node[1:]] == steps[:2]
