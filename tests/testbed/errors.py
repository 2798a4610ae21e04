"""How far slices, calibrated on a model of the links, are from real runs: a table of programs.

    python -m tests.testbed.errors --rate 400mbit job.py:8 other.py:16 -o errors.json

For each PROGRAM:RANKS, on at most 8 hosts: the truth, real runs on the testbed; then `prism capture`, `time` and
`calibrate` with the model that `prism bench-comm` has fitted on the same testbed beforehand (or --model FILE), none of
which reads anything of the real runs. Beside the error: the spread of the real runs, and the uncalibrated figure."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from prismllm.launch import Program
from prismllm.testbed import Testbed, rate, repeated


def prism(*words) -> None:
    done = subprocess.run([sys.executable, "-m", "prismllm", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"prism {words[0]} failed: {done.stderr}")


def predicted(program: Path, ranks: int, model: str, folder: Path, slots: int) -> dict:
    trace, timed, calibrated, figures = (folder / f"{name}" for name in ("a.prism", "b.prism", "c.prism", "c.json"))
    prism("capture", "-n", ranks, "--slots", slots, "--quiet", "-o", trace, program)
    prism("time", trace, "--slots", slots, "--quiet", "-o", timed)
    prism("calibrate", timed, "--comm", model, "--quiet", "--json", figures, "-o", calibrated)
    return json.loads(figures.read_text())


@click.command()
@click.option("--rate", "bits", default="400mbit", show_default=True)
@click.option("--repeat", default=5, show_default=True)
@click.option("--slots", default=2, show_default=True)
@click.option("--model", help="A cluster file  [default: measured]")
@click.option("-o", "--output", "path")
@click.argument("jobs", nargs=-1, required=True, metavar="PROGRAM:RANKS...")
def main(bits, repeat, slots, model, path, jobs):
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for job in jobs:
            text, _, ranks = job.rpartition(":")
            program, ranks = Path(text).resolve(), int(ranks)
            hosts = min(ranks, 8)
            if model is None:
                model = str(folder / "model.toml")
                prism("bench-comm", "-n", 8, "--hosts", 8, "--rate", bits, "--quiet", "-o", model)
            told = predicted(program, ranks, model, folder, slots)
            with Testbed(hosts, rate(bits)) as bed:
                truth = repeated(bed, Program(str(program), False, []), ranks, repeat)
            ours = told["iteration_time_s"]["median"]
            raw = told["uncalibrated_iteration_time_s"]
            rows.append({"program": program.stem, "ranks": ranks, "real_s": truth.iteration_s, "spread": truth.spread,
                         "calibrated_s": ours, "error": ours / truth.iteration_s - 1, "uncalibrated_s": raw,
                         "uncalibrated_error": raw / truth.iteration_s - 1})  # fmt: skip
            row = rows[-1]
            print(f"{program.stem:16} {ranks:3} ranks: "
                  f"real {row['real_s'] * 1e3:7.1f} ms (spread {row['spread']:.1%}), "
                  f"calibrated {ours * 1e3:7.1f} ms ({row['error']:+.1%}), "
                  f"uncalibrated {raw * 1e3:7.1f} ms ({row['uncalibrated_error']:+.1%})", flush=True)  # fmt: skip
    mean = sum(abs(row["error"]) for row in rows) / len(rows)
    print(f"mean error {mean:.1%}")
    if path:
        Path(path).write_text(json.dumps({"rows": rows, "mean_error": mean}, indent=1) + "\n")


main()
