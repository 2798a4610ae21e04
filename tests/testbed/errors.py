"""`prism validate` for several programs, with one model of the links for all that have the same number of hosts.

    python -m tests.testbed.errors --rate 400mbit job.py:8 other.py:16 -o errors.json

Each PROGRAM:RANKS is on at most 8 hosts; the model is of 8 hosts, or given with --comm."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click


def prism(*words, codes=(0,)) -> str:
    done = subprocess.run([sys.executable, "-m", "prismllm", *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode not in codes:
        sys.exit(done.returncode)
    return done.stdout


@click.command()
@click.option("--rate", default="400mbit", show_default=True)
@click.option("--repeat", default=5, show_default=True)
@click.option("--comm", help="A model of the links  [default: measured]")
@click.option("-o", "--output", "path")
@click.argument("jobs", nargs=-1, required=True, metavar="PROGRAM:RANKS...")
def main(rate, repeat, comm, path, jobs):
    rows, models = [], {}
    with tempfile.TemporaryDirectory() as name:
        for job in jobs:
            program, _, ranks = job.rpartition(":")
            measured = max(int(ranks), 8)  # more ranks than hosts share them
            if comm is None and measured not in models:
                models[measured] = Path(name) / f"model-{measured}.toml"
                prism("bench-comm", "-n", measured, "--hosts", 8, "--rate", rate, "--quiet", "-o", models[measured])
            told = json.loads(prism("validate", "-n", ranks, "--hosts", min(int(ranks), 8), "--rate", rate, "--repeat",
                                    repeat, "--comm", comm or models[measured], "--json", "-", "-o",
                                    Path(name) / "table.tsv", program, codes=(0, 1)))  # fmt: skip
            rows.append(told)
    mean = sum(abs(row["error"]["iteration"]) for row in rows) / len(rows)
    for row in rows:
        real, error, verdict = row["real"], row["error"]["iteration"], "ok" if row["ok"] else "out of bounds"
        print(f"{Path(row['program'][0]).stem:16} {row['ranks']:3} ranks: real {real['iteration_time_s'] * 1e3:7.1f} "
              f"ms (spread {real['spread']:.1%}), {row['compared']} {error:+.1%}, {verdict}")  # fmt: skip
    print(f"mean error of the iteration {mean:.1%}")
    if path:
        Path(path).write_text(json.dumps({"rows": rows, "mean_error": mean}, indent=1) + "\n")


main()
