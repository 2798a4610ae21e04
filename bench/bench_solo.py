"""Jobs of thousands of ranks captured alone, one rank of each class: how long it takes and how large the trace is."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "gpt3d.py"
GRID = ("--tp", "8", "--pp", "16", "--layers", "16", "--heads", "8", "--steps", "2")
# Ranks, sequences of a batch (one a replica and micro-batch), seconds and bytes that it may take.
JOBS = ((8192, 1024, 180.0, 100e6), (65536, 8192, 600.0, None))


def main() -> None:
    for ranks, batch, seconds, size in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "prismllm", "capture", "--quiet", "--inputs", "builtin", "-n", str(ranks)]
            begin = time.monotonic()
            subprocess.run([*command, "--slots", "2", "-o", "t.prism", PROGRAM, *GRID, "--batch", str(batch)],
                           cwd=folder, check=True, stdout=sys.stderr, timeout=900)  # fmt: skip
            took = time.monotonic() - begin
            trace = Path(folder, "t.prism").stat().st_size
        figures = [(f"{ranks:,} ranks alone, from command to trace", took, "s", seconds)]
        if size:
            figures.append((f"the trace of {ranks:,} ranks", trace / 1e6, "MB", size / 1e6))
        for name, value, unit, limit in figures:
            print(json.dumps({"name": name, "value": value, "unit": unit, "limit": limit}))


if __name__ == "__main__":
    main()
