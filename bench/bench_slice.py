"""What the virtual side costs a rank that is timed: a step that only computes and communicates, in a slice of one rank,
beside the same program alone on torch's fake process group. Runs of both alternate; of each the fastest step counts, as
what else the machine does only makes steps slower."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "processor_bound.py"
STEPS, PAIRS, LIMIT_PERCENT = 60, 7, 1.0


def steps(command: list[str]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    line = next(line for line in done.stdout.splitlines() if "STEPS" in line)
    return min(json.loads(line.split("STEPS ")[1])[2:])


def main():
    prism = [sys.executable, "-m", "prismllm"]
    with tempfile.TemporaryDirectory() as folder:
        trace, timed = os.path.join(folder, "job.prism"), os.path.join(folder, "timed.prism")
        program = [str(PROGRAM), str(STEPS)]
        subprocess.run(
            [*prism, "capture", "-n", "8", "--quiet", "-o", trace, *program], check=True, capture_output=True
        )
        slices = [*prism, "time", trace, "--slots", "1", "--by-class", "1", "--quiet", "-o", timed]
        pairs = [(steps([sys.executable, *program, "--fake"]), steps(slices)) for _ in range(PAIRS)]
    for fake, alone in pairs:
        print(f"fake process group {fake * 1e3:.3f} ms a step, slice {alone * 1e3:.3f} ms")
    more = min(alone for _, alone in pairs) / min(fake for fake, _ in pairs) - 1
    print(json.dumps({"name": "a step in a slice of one rank, beside the fake process group", "value": more * 100,
                      "unit": "% more", "limit": LIMIT_PERCENT}))  # fmt: skip


main()
