"""A capture whose disk is of every size between nothing and what it needs, and one beside which /dev/shm fills up at
many points. `make soak`; SOAK_POINTS sets how many points, 50 by default."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

POINTS = int(os.environ.get("SOAK_POINTS", "50"))
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "ddp.py"
ENOUGH_KB = 8192
# Beside a run: fills a folder at a moment, for good.
FILLER = "sleep {at}; head -c 1G /dev/zero > /dev/shm/filler 2>/dev/null"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="mounting needs root",
)


def run(folder, mount_at, kilobytes, beside="true"):
    """A capture in a mount namespace where `mount_at` is a small file system; (exit code, its errors, the trace)."""
    for name in ("small", "tmp"):
        (folder / name).mkdir()
    script = f"""mount -t tmpfs -o size={kilobytes}k none {mount_at} && ({beside}) & sleep 0
wait_for_mount() {{ until mountpoint -q {mount_at}; do :; done; }}; wait_for_mount
"$@"; code=$?; cp small/out.prism . 2>/dev/null; ls -A small > left.txt; exit $code"""
    command = [
        "unshare",
        "--mount",
        "--fork",
        "--kill-child",
        "bash",
        "-c",
        script,
        "sh",
        sys.executable,
        "-m",
        "prismllm",
    ]
    command += ["capture", "-n", "4", "--slots", "2", "--run-dir", "small/run", "-o", "small/out.prism", PROGRAM]
    environment = os.environ | {"TMPDIR": str(folder / "tmp")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    return done.returncode, done.stderr, folder / "out.prism"


def is_whole(trace) -> bool:
    command = [sys.executable, "-m", "prismllm", "info", "--json", "-", trace]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("point", range(POINTS))
def test_a_disk_of_any_size_gives_a_whole_trace_or_none(point, tmp_path):
    kilobytes = max(8, ENOUGH_KB * point * point // (POINTS * POINTS))  # most of them small, where things fail
    code, errors, trace = run(tmp_path, "small", kilobytes)
    print(f"{kilobytes} kB: exit code {code}, {errors.partition(chr(10))[0]}")
    if code == 0:
        assert is_whole(trace), errors
        return
    assert code in (2, 3, 4), errors
    assert "Traceback" not in errors, errors
    assert re.search(r"[Nn]o space left|disk full|could not write|cannot be", errors), errors
    assert not trace.exists()
    assert not [name for name in (tmp_path / "left.txt").read_text().split() if name.startswith((".", "out.prism"))]


@pytest.mark.parametrize("point", range(POINTS))
def test_a_full_dev_shm_does_not_matter(point, tmp_path):
    code, errors, trace = run(tmp_path, "/dev/shm", 1024, FILLER.format(at=4.0 * point / POINTS))
    assert code == 0, errors
    assert is_whole(trace)
