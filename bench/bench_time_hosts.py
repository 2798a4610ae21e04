"""How the time of `prism time` goes with hosts and ranks (PrismLLM paper, section 8.2). Each rank's device time is
sleep, so that hosts may be processes of one machine: each has one slot, and a slice is one rank."""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

HOSTS, RANKS = (1, 2, 4), (8, 16, 32)
STEPS, STEP_S = 10, 0.1
LIMIT = 1.25  # of an even division among four hosts
PRISM = [sys.executable, "-m", "prismllm"]
PROGRAM = f"""
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for _ in range({STEPS}):
    time.sleep({STEP_S})
    dist.all_reduce(torch.ones(1000))
"""


def seconds(folder: str, ranks: int, hosts: int) -> float:
    """From the first rank's start to the last one's end."""
    words = [*PRISM, "time", f"{ranks}.prism", "--quiet", "--json", "-", "--slots", "1", "-o", "timed.prism"]
    if hosts > 1:
        words += ["--agents", str(hosts - 1), "--listen", "127.0.0.1:0", "--token-file", "token"]
    words = [word for word in words if hosts == 1 or word != "--quiet"]
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(
            subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(head.kill)
        if hosts > 1:
            told = []
            while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", "".join(told))):
                told.append(head.stderr.readline())
                if not told[-1]:
                    raise RuntimeError("".join(told) or "prism time has ended without a word")
            port = found[1]
            agent = [*PRISM, "agent", "--connect", f"127.0.0.1:{port}", "--token-file", "token", "--slots", "1"]
            for _ in range(hosts - 1):
                stack.enter_context(subprocess.Popen([*agent, "--quiet"], cwd=folder))
        printed, complained = head.communicate(timeout=600)
        if head.returncode:
            raise RuntimeError(complained)
        return json.loads(printed)["wall_s"]


def main() -> None:
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(PROGRAM)
        Path(folder, "token").write_text("a token of no other use")
        Path(folder, "token").chmod(0o600)
        for ranks in RANKS:
            capture = [*PRISM, "capture", "--quiet", "-n", str(ranks), "-o", f"{ranks}.prism", "program.py"]
            subprocess.run(capture, cwd=folder, check=True, timeout=600)
            for hosts in HOSTS:
                took[hosts, ranks] = seconds(folder, ranks, hosts)
    table = Table("hosts", *(f"{ranks} ranks" for ranks in RANKS), title="seconds to time all slices")
    for hosts in HOSTS:
        table.add_row(str(hosts), *(f"{took[hosts, ranks]:.2f}" for ranks in RANKS))
    Console().print(table)
    ideal = STEPS * STEP_S * RANKS[-1] / HOSTS[-1]
    figure = {"name": f"{RANKS[-1]} ranks timed on {HOSTS[-1]} hosts, beside an even division",
              "value": took[HOSTS[-1], RANKS[-1]] / ideal, "unit": "times", "limit": LIMIT}  # fmt: skip
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
