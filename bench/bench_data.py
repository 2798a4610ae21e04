"""What recording tensors costs a capture (`--data`), and how fast they reach the disk, beside the disk's own speed.

The same capture runs with and without, in turn. A rank computes on 1,024 samples in each step, a fraction of the tokens
that one of an LLM has, and so has less time per byte of gradient. Other work on the machine only ever adds time: the
fastest runs are compared. Between them as many bytes are written by plain calls, to the same place.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "programs" / "wide_ddp.py"
RANKS = 4
LIMIT = 1.10


def capture(folder: Path, program_options: list[str], *options: str) -> tuple[dict, dict]:
    """(what the command says, the coordinator's statistics)"""
    run = folder / "run"
    command = [sys.executable, "-m", "prismllm", "capture", "--quiet", "--json", "run.json", "--run-dir", run]
    command += ["-n", str(RANKS), *options, PROGRAM, *program_options]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, timeout=250)
    status = json.loads((run / "status" / "coordinator.json").read_text())
    return json.loads((folder / "run.json").read_text()), status["statistics"]


def remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def disk_speed(folder: Path, count: int) -> float:
    """Bytes a second of one file of `count` bytes, until it is on the disk."""
    block = os.urandom(8 << 20)
    path = folder / "plain"
    begin = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for _ in range(max(1, count // len(block))):
            file.write(block)
        os.fsync(file.fileno())
    elapsed = time.monotonic() - begin
    path.unlink()
    return max(1, count // len(block)) * len(block) / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4, help="runs with and without")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1024)
    options = parser.parse_args()
    program_options = [f"--{name}={getattr(options, name)}" for name in ("steps", "layers", "samples")]
    without, with_all, reduced, written, plain, data = [], [], [], [], [], {}
    with tempfile.TemporaryDirectory(prefix="prism-bench-", dir=os.environ.get("PRISM_BENCH_DIR")) as name:
        folder = Path(name)
        for _ in range(options.pairs):
            without.append(capture(folder, program_options)[0]["wall_s"])
            if data:
                plain.append(disk_speed(folder, data["stored_bytes"]))
            summary, statistics = capture(folder, program_options, "--data", "d")
            data = summary["data"]
            with_all.append(summary["wall_s"])
            written.append(data["stored_bytes"] / statistics["data"]["write_s"])
            remove(folder / "d")
            summary, _ = capture(folder, program_options, "--data", "d", "--for-ranks", "0")
            reduced.append(summary["wall_s"])
            remove(folder / "d")
        plain.append(disk_speed(folder, data["stored_bytes"]))
    job = f"{RANKS} ranks, {data['stored_bytes'] / 1e6:.0f} MB"
    figures = [
        {"name": f"capture --data over without, {job}", "value": min(with_all) / min(without), "limit": LIMIT},
        {"name": "the same with --for-ranks 0", "value": min(reduced) / min(without), "limit": LIMIT},
        {"name": "recorded bytes, best", "value": max(written) / 1e6, "unit": "MB/s", "limit": max(plain) / 1e6,
         "better": "higher", "peer": "write and fsync"},
        {"name": "bytes put in over bytes stored", "value": data["bytes"] / data["stored_bytes"]},
    ]  # fmt: skip
    for figure in figures:
        print(json.dumps({"unit": "", **figure}))


if __name__ == "__main__":
    main()
