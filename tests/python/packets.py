"""The program prism-ns3 for tests: where it is, and commands that need it."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_traces import data_parallel

from prismllm import simulate
from prismllm.simulate.packets import program_of

try:
    PROGRAM = program_of("ns3")
except ValueError:
    PROGRAM = ""
needs_ns3 = pytest.mark.skipif(not PROGRAM, reason="prism-ns3 is not installed; 'make ns3' installs it")


def run_elsewhere(folder: Path, *arguments) -> subprocess.CompletedProcess:
    """`prism ARGUMENTS` by an interpreter in `folder`, with nothing else on PATH."""
    program = "import sys; sys.executable = sys.argv.pop(1); from prismllm.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, folder / "python", *arguments]
    environment = {"PATH": str(folder), "PYTHONPATH": str(Path(simulate.__file__).parents[2])}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, env=environment)


def commands(folder: Path, repository: Path) -> list[tuple]:
    """That need the program."""
    cluster, trace = repository / "examples" / "clusters" / "dgx_h100_pod.toml", folder / "job.prism"
    data_parallel([5, 3], nbytes=4_000_000, transfer_ms=2).write(str(trace))
    return [("simulate", "collective", "all_reduce", "--ranks", 4, "--bytes", "1M", "--network", "ns3"),
            ("replay", trace, "--comm", cluster, "--network", "ns3")]  # fmt: skip
