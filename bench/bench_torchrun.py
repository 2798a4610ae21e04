"""From command to end: jobs of 16 ranks captured, beside torchrun on Gloo, turn by turn; the fastest of each counts."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RANKS, TURNS, SLOTS = 16, 2, 2
JOBS = {"DDP classifier, 20 steps": ["bench/programs/ddp_classifier.py", "--steps", "20"],
        "3-D parallel GPT, 4 steps": ["examples/gpt3d.py", "--steps", "4"]}  # fmt: skip
CAPTURE = [sys.executable, "-m", "prismllm", "capture", "--quiet", "-n", str(RANKS), "--slots", str(SLOTS)]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]


def seconds(launcher: list[str], job: list[str]) -> float:
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        begin = time.monotonic()
        subprocess.run([*launcher, ROOT / job[0], *job[1:]], cwd=folder, check=True, stdout=sys.stderr, timeout=280)
        return time.monotonic() - begin


def main() -> None:
    for name, job in JOBS.items():
        times = {"capture": [], "torchrun": []}
        for _ in range(TURNS):
            times["torchrun"].append(seconds(TORCHRUN, job))
            times["capture"].append(seconds(CAPTURE, job))
        ours, peer = (min(times[which]) for which in ("capture", "torchrun"))
        label = f"{name}, {RANKS} ranks: capture on {SLOTS} slots"
        print(json.dumps({"name": label, "value": ours, "unit": "s", "limit": peer, "peer": "torchrun"}), flush=True)


if __name__ == "__main__":
    main()
