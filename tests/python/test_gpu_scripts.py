"""The scripts for a GPU machine run here on the CPU, so that time on a GPU is not spent on finding their mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.alone  # parts have time limits, and one compiles
def test_every_part_runs_on_the_cpu_and_yields_its_figures(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable}
    command = [ROOT / "tests" / "gpu" / "run.sh", "--cpu", tmp_path / "no-wheels", tmp_path / "out"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = {part["part"]: part for part in json.loads((tmp_path / "out" / "gpu.json").read_text())}
    assert list(parts) == ["build", "record", "spans", "capture", "memory", "swap", "overhead"]
    figures = {figure["name"]: figure["value"] for part in parts.values() for figure in part["figures"]}
    assert figures["all_reduce recorded, of those issued"] == 1.0
    assert figures["matrix products alone"] > 0
    assert figures["blocks below a limit of 16"] == 16 and figures["the same after freeing half"] == 8
    assert figures["summary against the allocator"] == 0
    assert figures["swaps where everything fits"] == 0 and figures["swaps out"] >= 1
    assert figures["4 ranks against one process, parameters"] < 1e-4
    assert {"recording, time: 95% upper bound", "recording, processor time: 95% upper bound"} <= figures.keys()


def test_a_part_that_fails_or_hangs_is_named_and_the_others_still_count(tmp_path):
    (tmp_path / "parts.txt").write_text("build 0 12\nrecord 124 80\nspans 1 2\n")
    for part in ("build", "record", "spans"):
        (tmp_path / f"{part}.out").write_text('words\n{"name": "a", "value": 3, "unit": "s", "limit": 2}\n')
    command = [sys.executable, ROOT / "tests" / "gpu" / "summary.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["build", "ran", "12", "s"]
    assert "MISSED (<= 2)" in lines[1]
    assert "TIMED OUT" in lines[2] and "FAILED (1)" in lines[4]
    assert lines[-1].startswith("1 parts ran, 2 did not")
