"""Runs every benchmark and prints one table: what was measured beside the limit or peer it is judged by.

A benchmark is an executable build/bench/bench/cpp/bench_* or a program bench/bench_*.py. Each prints JSON lines,
{"name", "value", "unit", "limit", "better": "lower" (default) or "higher"}; "peer" names what the limit is where it is
another program's figure. Other lines pass through. Exit code 1 where a benchmark fails to run; a missed limit is shown,
not punished, because times depend on the machine.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]


def benchmarks(build: Path, pattern: str) -> list[list[str]]:
    compiled = [
        [str(p)] for p in sorted((build / "bench" / "cpp").glob("bench_*")) if p.is_file() and os.access(p, os.X_OK)
    ]
    programs = [[sys.executable, str(p)] for p in sorted((ROOT / "bench").glob("bench_*.py"))]
    return [command for command in compiled + programs if pattern in Path(command[-1]).stem]


def measure(command: list[str], timeout: float) -> tuple[list[dict], str]:
    """The figures that a benchmark printed, and what went wrong with it, if anything."""
    figures = []
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=timeout, cwd=ROOT, env=environment)
    except subprocess.TimeoutExpired:
        return figures, f"no end within {timeout:.0f} s"
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            figures.append(json.loads(line))
        else:
            print(line)
    if done.returncode:
        return figures, f"exit code {done.returncode}"
    return figures, "" if figures else "it printed no figure"


def met(figure: dict) -> bool:
    higher = figure.get("better", "lower") == "higher"
    return figure["value"] >= figure["limit"] if higher else figure["value"] <= figure["limit"]


def row(figure: dict) -> list[str]:
    unit, limit = figure["unit"], figure.get("limit")
    cells = [figure["name"], f"{figure['value']:,.4g} {unit}"]
    if limit is None:
        return [*cells, "-", "-", ""]
    relation = ">=" if figure.get("better") == "higher" else "<="
    peer = f" ({figure['peer']})" if "peer" in figure else ""
    verdict = "[green]met[/green]" if met(figure) else "[red]missed[/red]"
    return [
        *cells,
        f"{relation} {limit:,.4g} {unit}{peer}",
        f"{figure['value'] / limit:.2f}" if limit else "-",
        verdict,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", help="run benchmarks whose file name contains this")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "bench", help="where the C++ ones were built")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one benchmark may take")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()

    table = Table("figure", "value", "limit or peer", "ratio", "", title="Benchmarks")
    every, failures = [], []
    for command in benchmarks(options.build, options.only):
        name = Path(command[-1]).stem
        print(f"bench: {name}", flush=True)
        figures, problem = measure(command, options.timeout)
        every += figures
        for figure in figures:
            table.add_row(*row(figure))
        if problem:
            failures.append(f"{name}: {problem}")
    Console(width=max(120, Console().width)).print(table)
    if options.json:
        options.json.write_text(json.dumps(every, indent=1) + "\n")
    for failure in failures:
        print(f"bench: {failure}", file=sys.stderr)
    return 1 if failures or not every else 0


if __name__ == "__main__":
    sys.exit(main())
