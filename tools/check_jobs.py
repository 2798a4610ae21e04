"""Captures each training program of a corpus with 1, 2 and all slots and compares what it prints with its baseline.

The corpus is a folder of programs with a baseline.json, {job: {"world": N, "result": {...}}}, the RESULT line of each
under torchrun and Gloo. Every number must agree to a relative 1e-5, every capture must print the same bytes, and all
traces of a job must be structurally equal, also that of ranks that run alone, with the rules of examples/rules. Exit
code 1 where something differs.

A 16-bit matrix product depends on the processor, and training makes the difference grow: where a number differs from
the file's, the program runs under torchrun and stock Gloo here as well, and that is the baseline which counts.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 1e-5  # relative: Gloo reduces in another order
PRISM = [sys.executable, "-m", "prismllm"]
RULES = ROOT / "examples" / "rules"


@dataclass
class Outcome:
    job: str
    world: int
    seconds: dict[str, float] = field(default_factory=dict)
    problem: str = ""
    baseline_of_this_machine: bool = False


class CheckFailed(Exception):
    """One sentence on what differs from what was expected."""


def differs(found, expected, where: str = "") -> str:
    """The first place where two JSON values differ (numbers: beyond TOLERANCE), or an empty string."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return next(filter(None, (differs(found[key], expected[key], f"{where}.{key}") for key in expected)), "")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        return next(filter(None, (differs(a, b, f"{where}[{i}]") for i, (a, b) in pairs)), "")
    if isinstance(expected, float) and isinstance(found, (int, float)):
        same = math.isclose(found, expected, rel_tol=TOLERANCE)
    else:
        same = found == expected
    return "" if same else f"{where.lstrip('.') or 'RESULT'} is {found}, the baseline has {expected}"


def run(
    command: list[str], timeout: float, environment: dict | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, env=environment,
            cwd=folder,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"no end within {timeout:.0f} s: {' '.join(command[-4:])}") from None


def last_words(text: str) -> str:
    """What prism says went wrong, with the lines that explain it; else the last line."""
    _, found, explanation = text.rpartition("prism: ")
    lines = [line for line in (explanation if found else text).splitlines() if line.strip()]
    return "\n  ".join(lines[:12] if found else lines[-1:]) or "no output"


def capture(program: Path, world: int, slots: int, trace: Path, timeout: float, *options: str) -> str:
    """The RESULT line of one capture, without what may stand before the word."""
    command = [*PRISM, "capture", "-n", str(world), "--slots", str(slots), "-o", str(trace), *options, str(program)]
    done = run(command, timeout, folder=trace.parent)
    if done.returncode:
        raise CheckFailed(f"slots {slots}: exit {done.returncode}: {last_words(done.stderr or done.stdout)}")
    for line in done.stdout.splitlines():
        _, found, result = line.partition("RESULT ")
        if found:
            return result
    raise CheckFailed(f"slots {slots}: no RESULT line; last was: {last_words(done.stdout)}")


def stock_result(program: Path, world: int, timeout: float) -> dict:
    """The RESULT of the program on this machine without PrismLLM."""
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(world), str(program)]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    words = ""
    for _ in range(3):  # stock workers sometimes abort in teardown, and torchrun then hides what was printed
        done = run([sys.executable, "-m", *command], timeout, environment)
        words = done.stdout + done.stderr
        _, found, result = done.stdout.partition("RESULT ")
        if found:
            return json.loads(result.splitlines()[0])
    raise CheckFailed(f"torchrun and Gloo give no RESULT on this machine: {last_words(words)}")


def capture_alone(program: Path, world: int, trace: Path, timeout: float) -> None:
    rules = RULES / program.name
    if rules.is_file() and "recorded(" in rules.read_text():
        capture(program, world, 2, trace, timeout, "--data", f"{program.stem}.data")
    capture(program, world, 2, trace, timeout, "--inputs", str(rules) if rules.is_file() else "builtin")


def compare(first: Path, second: Path, what: str) -> None:
    if (done := run([*PRISM, "diff", str(first), str(second)], 120)).returncode:
        raise CheckFailed(f"{what} differ: {last_words(done.stdout + done.stderr)}")


def check(program: Path, world: int, expected: dict, timeout: float, folder: Path) -> Outcome:
    outcome = Outcome(program.stem, world)
    runs = {"1": 1, "2": 2, "all": world, "2 again": 2}
    try:
        lines, traces = {}, {}
        for label, slots in runs.items():
            traces[label] = folder / f"{program.stem}-{label.replace(' ', '-')}.prism"
            begin = time.monotonic()
            lines[label] = capture(program, world, slots, traces[label], timeout)
            outcome.seconds[label] = time.monotonic() - begin
            if differs(json.loads(lines[label]), expected) and not outcome.baseline_of_this_machine:
                expected = stock_result(program, world, timeout)
                outcome.baseline_of_this_machine = True
            if place := differs(json.loads(lines[label]), expected):
                raise CheckFailed(f"slots {label}: {place}")
            if lines[label] != lines["1"]:
                raise CheckFailed(f"slots {label} prints {lines[label]}, slots 1 prints {lines['1']}")
            if label != "1":
                compare(traces["1"], traces[label], f"traces with slots 1 and {label}")
        traces["alone"] = folder / f"{program.stem}-alone.prism"
        begin = time.monotonic()
        capture_alone(program, world, traces["alone"], timeout)
        outcome.seconds["alone"] = time.monotonic() - begin
        compare(traces["1"], traces["alone"], "the trace with peers and that of ranks alone")
    except CheckFailed as failure:
        outcome.problem = str(failure)
    finally:
        for trace in folder.glob(f"{program.stem}-*.prism"):
            trace.unlink()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", help="names to check (default: every one in baseline.json)")
    default = os.environ.get("PRISM_JOBS", ROOT.parent / "shared" / "jobs")
    parser.add_argument("--folder", type=Path, default=default, help="the corpus (default: PRISM_JOBS or %(default)s)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that one capture may take")
    parser.add_argument("--at-once", type=int, default=2, help="jobs that are checked side by side (default: 2)")
    options = parser.parse_args()
    baselines = options.folder / "baseline.json"
    if not baselines.is_file():
        print(f"check-jobs: {baselines} is not there, nothing to compare with")
        return 0
    baseline = json.loads(baselines.read_text())
    if unknown := set(options.jobs) - set(baseline):
        parser.error(f"no such job: {', '.join(sorted(unknown))}; there are {', '.join(sorted(baseline))}")

    table = Table(
        "job",
        "ranks",
        "slots 1",
        "slots 2",
        "slots all",
        "alone",
        "verdict",
        title="Captures against torchrun and Gloo",
    )
    outcomes = []
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with (
        tempfile.TemporaryDirectory(prefix="prism-check-jobs-") as folder,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        for outcome in pool.map(
            lambda job: check(
                (options.folder / f"{job}.py").resolve(), baseline[job]["world"], baseline[job]["result"],
                options.timeout, Path(folder)
            ),
            options.jobs or sorted(baseline),
        ):  # fmt: skip
            note = " (to torchrun and Gloo here)" if outcome.baseline_of_this_machine else ""
            print(f"check-jobs: {outcome.job}: {outcome.problem or 'equal'}{note}", flush=True)
            outcomes.append(outcome)
    for outcome in outcomes:
        labels = ("1", "2", "all", "alone")
        times = [f"{outcome.seconds[label]:.1f} s" if label in outcome.seconds else "-" for label in labels]
        verdict = "[red]differs[/red]" if outcome.problem else "[green]equal[/green]"
        table.add_row(outcome.job, str(outcome.world), *times, verdict)
    Console().print(table)
    failed = sum(bool(outcome.problem) for outcome in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
