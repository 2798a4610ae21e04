"""Tensors beyond the memory budget: bytes that went to disk and came back, per second of the whole run (start and sums
included), beside writing and reading a file of a step's size there; and the run's time beside the same in memory."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "programs" / "large_sums.py"
RANKS, MIB, STEPS = 4, 256, 3
PIECE = 16 << 20


def capture(folder: str, *options: str) -> dict:
    command = [sys.executable, "-m", "prismllm", "capture", "--quiet", "--json", "run.json", "-n", str(RANKS), *options]
    command += [str(PROGRAM), "--mib", str(MIB), "--steps", str(STEPS)]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, timeout=250)
    return json.loads((Path(folder) / "run.json").read_text())


def file_speed(folder: str, size: int) -> float:
    """Bytes per second of writing a file and reading it again, in the kernel's cache as far as it keeps it."""
    piece = os.urandom(PIECE)
    begin = time.monotonic()
    with open(os.path.join(folder, "peer"), "wb+", buffering=0) as file:
        for _ in range(size // PIECE):
            file.write(piece)
        file.seek(0)
        while file.read(PIECE):
            pass
    return size / (time.monotonic() - begin)


def main() -> None:
    # Beside this file: the temporary folder may be in memory.
    with tempfile.TemporaryDirectory(prefix="prism-bench-", dir=Path(__file__).resolve().parents[1]) as folder:
        in_memory = min(capture(folder)["wall_s"] for _ in range(2))
        spilled = [capture(folder, "--memory-budget", "64M", "--spill-dir", folder) for _ in range(2)]
        peer = file_speed(folder, RANKS * MIB << 20)
    run = min(spilled, key=lambda one: one["wall_s"])
    # Each rank's tensor in each step, and the result of each step.
    size = (RANKS + 1) * STEPS * MIB << 20
    speed = size / run["wall_s"]
    print(json.dumps({"name": f"spilling {size >> 20} MiB ({run['spilled_bytes_peak'] >> 20} at a time)",
                      "value": speed / 1e6, "unit": "MB/s", "limit": peer / 1e6, "better": "higher",
                      "peer": "a file written and read"}))  # fmt: skip
    print(
        json.dumps({"name": "the same run, spilled, beside in memory", "value": run["wall_s"] / in_memory, "unit": "x"})
    )


if __name__ == "__main__":
    main()
