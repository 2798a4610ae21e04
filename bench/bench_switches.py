"""Switches of a captured job, beside those of a plain round-robin and the lower bound; the fewest of three runs each.

A holder that sleeps for a moment lends its slot, so counts differ by some per cent between runs."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOTS = (1, 2)
JOBS = {  # name: (ranks, program, its options)
    "gpt3d": (16, "examples/gpt3d.py", ["--steps", "2"]),
    "ddp": (16, "tests/programs/ddp.py", []),
    "fsdp2": (4, "tests/programs/fsdp2.py", []),
    "pipeline": (4, "tests/programs/pipeline.py", []),
    "tensor_parallel": (4, "tests/programs/tensor_parallel.py", []),
    "moe": (4, "tests/programs/moe.py", []),
}


def capture(ranks: int, slots: int, schedule: str, program: str, options: list[str]) -> dict:
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        command = [sys.executable, "-m", "prismllm", "capture", "--quiet", "--json", "run.json", "-n", str(ranks)]
        command += ["--slots", str(slots), "--schedule", schedule, str(ROOT / program), *options]
        subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, timeout=120)
        return json.loads((Path(folder) / "run.json").read_text())


def main() -> None:
    for name, (ranks, program, options) in JOBS.items():
        for slots in SLOTS:
            runs = {
                schedule: [capture(ranks, slots, schedule, program, options) for _ in range(3)]
                for schedule in ("need", "round-robin")
            }
            ours, peer = (min(run["switches"] for run in runs[schedule]) for schedule in ("need", "round-robin"))
            bound = min(run["switches_lower_bound"] for run in runs["need"])
            label = f"switches, {name}, {ranks} ranks on {slots} (bound {bound})"
            print(json.dumps({"name": label, "value": ours, "unit": "", "limit": peer, "peer": "round-robin"}))


if __name__ == "__main__":
    main()
