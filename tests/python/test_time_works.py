"""Works of a rank that runs alone, to be timed."""

import subprocess
import sys

import prismllm

PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
works[1].wait()
torch.randn(500, 500) @ torch.randn(500, 500)
"""
DRIVER = """
from prismllm.launch import LaunchOptions, Program, RunFolder, launch
from prismllm.launch.handout import on_this_host
folder = RunFolder("run")
folder.create()
options = LaunchOptions("capture", 2, Program("program.py"), folder.path, folder.logs, slots=1, inputs="builtin",
                        classes=False, timed=True)
with on_this_host(options, folder, [[0], [1]]) as (options, company):
    launch(options, company=company)
"""


def test_a_communication_that_is_answered_at_once_has_ended_whether_anybody_waits_for_it_or_not(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "-c", DRIVER], cwd=tmp_path, check=True, timeout=120)
    rank = prismllm.load(tmp_path / "run" / "fragments" / "rank-0.prism").rank(0)
    transfers = rank.is_kind("transfer")
    assert rank.duration_ns[transfers].tolist() == [0, 0, 0]
