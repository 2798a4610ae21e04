"""Writes baseline.json: the RESULT line of every program of this folder on the real Gloo backend under torchrun.

python tests/programs/baseline.py [NAME...]      # all, or only these
"""

import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
# name: (program, ranks, options)
RUNS = {
    "ddp": ("ddp.py", 4, []),
    "ddp_buckets": ("ddp_buckets.py", 4, []),
    "ddp_accumulation": ("ddp_accumulation.py", 4, []),
    "ddp_bf16_hook": ("ddp_bf16_hook.py", 4, []),
    "ddp_powersgd": ("ddp_powersgd.py", 4, []),
    "ddp_variants": ("ddp_variants.py", 4, []),
    "fsdp1": ("fsdp1.py", 4, []),
    "fsdp2": ("fsdp2.py", 4, []),
    "hsdp": ("fsdp2.py", 4, ["--replicas", "2"]),
    "tensor_parallel": ("tensor_parallel.py", 4, []),
    "mesh_2d": ("mesh_2d.py", 4, []),
    "pipeline_gpipe": ("pipeline.py", 4, ["--schedule", "gpipe"]),
    "pipeline_1f1b": ("pipeline.py", 4, ["--schedule", "1f1b"]),
    "pipeline_interleaved": ("pipeline.py", 4, ["--schedule", "interleaved"]),
    "pipeline_schedules": ("pipeline_schedules.py", 4, []),
    "moe": ("moe.py", 4, []),
    "zero_optimizer": ("zero_optimizer.py", 4, []),
    "objects": ("objects.py", 5, []),
    "subgroups": ("subgroups.py", 4, []),
    "checkpoint": ("checkpoint.py", 4, []),
    "checkpoint_process": ("checkpoint_process.py", 2, []),
    "loaders": ("loaders.py", 2, []),
    "compiled": ("compiled.py", 2, []),
    "messages": ("messages.py", 5, []),
    "collectives": ("collectives.py", 4, []),
    "futures": ("futures.py", 4, []),
    "gpt3d": ("../../examples/gpt3d.py", 8, ["--tp", "2", "--pp", "2", "--steps", "2", "--batch", "16"]),
}


def result_of(output):
    (line,) = [line for line in output.splitlines() if "RESULT {" in line]
    return json.loads(line.split("RESULT ", 1)[1])


def main():
    target = FOLDER / "baseline.json"
    baseline = json.loads(target.read_text()) if target.exists() and sys.argv[1:] else {}
    for name in sys.argv[1:] or RUNS:
        program, world, options = RUNS[name]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
        run = subprocess.run(
            [*torchrun, str(FOLDER / program), *options],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        )
        baseline[name] = {"program": program, "world": world, "options": options, "result": result_of(run.stdout)}
        print(name, baseline[name]["result"]["losses"], flush=True)
    target.write_text(json.dumps(baseline, indent=1) + "\n")


if __name__ == "__main__":
    main()
