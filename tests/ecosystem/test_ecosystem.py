"""Programs of the frameworks that people train with, as they are: under `prism capture` and `prism record` they give
the losses that they give under torchrun with stock Gloo."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
WORLDS = {"with_megatron": 4}  # two tensor parallel pairs; two ranks elsewhere


def losses(command, name, tmp_path):
    # DeepSpeed compiles its operators where HOME points to; without an accelerator it must be told so.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    words = [sys.executable, "-m", *command, str(PROGRAMS / f"{name}.py")]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "RESULT [" in line]
    return ast.literal_eval(line[line.index("RESULT [") + len("RESULT ") :])


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("with_*.py")))
def test_losses_are_those_of_torchrun(name, tmp_path):
    world = str(WORLDS.get(name, 2))
    expected = losses(["torch.distributed.run", "--standalone", "--nproc-per-node", world], name, tmp_path)
    assert expected
    for command in (
        ["prismllm", "capture", "-n", world, "--slots", "1"],
        ["prismllm", "capture", "-n", world, "--slots", "2"],
        ["prismllm", "record", "-n", world],
    ):
        assert losses(command, name, tmp_path) == pytest.approx(expected, rel=1e-4), command[1]
