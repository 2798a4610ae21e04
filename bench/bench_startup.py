"""How fast 64 logical ranks of a data parallel job are up and through a training step, and what memory each costs."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = 64
PROGRAM = Path(__file__).resolve().parent / "programs" / "ddp_classifier.py"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "prismllm", "capture", "--quiet", "--json", "run.json", "-n", str(RANKS)]
        subprocess.run([*command, PROGRAM, "--steps", "1"], cwd=folder, check=True, stdout=sys.stderr, timeout=120)
        summary = json.loads((Path(folder) / "run.json").read_text())
    figures = (
        # From the first fork, when the zygote is warm, to the last rank's end.
        (f"{RANKS} logical ranks through a DDP step", summary["wall_s"], "s", 5.0),
        ("private memory of a rank, at most", summary["peak_private_bytes_per_rank"] / 1e6, "MB", 15.0),
    )
    for name, value, unit, limit in figures:
        print(json.dumps({"name": name, "value": value, "unit": unit, "limit": limit}))


if __name__ == "__main__":
    main()
