"""The benchmark table and the comparison of captures: what they read is judged as it should be."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str, path: Path):
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


check_jobs = load("check_jobs", ROOT / "tools" / "check_jobs.py")
bench = load("bench_run", ROOT / "bench" / "run.py")


@pytest.mark.parametrize(
    ("found", "place"),
    [
        ({"losses": [2.0, 3.0]}, ""),
        ({"losses": [2.0, 3.00001]}, ""),
        ({"losses": [2.0, 3.0001]}, "losses[1] is 3.0001, the baseline has 3.0"),
        ({"losses": [2.0]}, "losses is [2.0], the baseline has [2.0, 3.0]"),
        ({"losses": [2.0, float("nan")]}, "losses[1] is nan, the baseline has 3.0"),
        ({}, "RESULT is {}, the baseline has {'losses': [2.0, 3.0]}"),
    ],
)
def test_losses_agree_with_a_baseline_up_to_rounding_of_sums(found, place):
    assert check_jobs.differs(found, {"losses": [2.0, 3.0]}) == place


def test_counts_must_be_equal_to_the_last_one():
    assert check_jobs.differs({"tokens": [179]}, {"tokens": [180]}) == "tokens[0] is 179, the baseline has 180"


def test_without_a_corpus_there_is_nothing_to_compare(tmp_path):
    command = [sys.executable, ROOT / "tools" / "check_jobs.py", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "is not there" in done.stdout


def test_a_job_that_does_not_run_is_a_failed_comparison(tmp_path):
    (tmp_path / "baseline.json").write_text(json.dumps({"broken": {"world": 2, "result": {"losses": [1.0]}}}))
    (tmp_path / "broken.py").write_text("raise SystemExit('no data')\n")
    command = [sys.executable, ROOT / "tools" / "check_jobs.py", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize(
    ("better", "value", "met"),
    [("lower", 4.9, True), ("lower", 5.1, False), ("higher", 5.1, True), ("higher", 1, False)],
)
def test_a_figure_meets_its_limit_from_the_side_that_is_better(better, value, met):
    figure = {"name": "x", "value": value, "unit": "s", "limit": 5, "better": better}
    assert bench.met(figure) == met
    assert bench.row(figure)[3] == f"{value / 5:.2f}"


def test_a_benchmark_that_fails_is_reported_with_what_it_had_measured(tmp_path):
    program = tmp_path / "bench_x.py"
    program.write_text("""print('{"name": "x", "value": 1, "unit": "s"}'); raise SystemExit(3)""")
    figures, problem = bench.measure([sys.executable, str(program)], timeout=60)
    assert [figure["name"] for figure in figures] == ["x"] and problem == "exit code 3"
