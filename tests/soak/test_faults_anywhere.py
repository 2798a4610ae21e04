"""Every process of a capture is killed, stopped or interrupted at many points of its run, from the first import to the
writing of the trace. `make soak` (about half an hour); SOAK_POINTS sets how many points, 50 by default."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import Run

POINTS = int(os.environ.get("SOAK_POINTS", "50"))
WITHIN_S = 5.0  # of the fault, everybody is gone; of a stopped rank, which takes 2 s to be told from a slow one, later
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "ddp.py"
RANKS = 4


def start(folder) -> Run:
    (folder / "tmp").mkdir(parents=True)
    environment = os.environ | {"TMPDIR": str(folder / "tmp")}
    command = ["capture", "-n", RANKS, "--slots", 2, "-o", "out.prism", PROGRAM, "--steps", 20]
    return Run(*command, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def duration(tmp_path_factory) -> float:
    """Seconds of a run that nobody disturbs."""
    run = start(tmp_path_factory.mktemp("whole") / "run")
    begin = time.monotonic()
    assert run.end() == 0
    return time.monotonic() - begin


def victims(run: Run) -> dict[str, int]:
    """Who is there: the command, its zygote, and of the zygote's children, by age, the coordinator and the ranks."""
    found = {"command": run.pid}
    for name, parent in (("zygote", "command"), ("child", "zygote")):
        if parent not in found:
            break
        path = f"/proc/{found[parent]}/task"
        try:
            children = [
                int(pid) for task in os.listdir(path) for pid in Path(path, task, "children").read_text().split()
            ]
        except OSError:
            break
        if name == "zygote" and children:
            found["zygote"] = children[0]
        elif name == "child":
            names = ["coordinator", *(f"rank {rank}" for rank in range(RANKS))]
            if len(children) == len(names):  # later, who has ended is not known by its place
                found |= dict(zip(names, sorted(children), strict=True))
    return found


FAULTS = {
    "rank killed": ("rank 2", signal.SIGKILL, {3, 4}),
    "rank stopped": ("rank 1", signal.SIGSTOP, {3}),
    "coordinator killed": ("coordinator", signal.SIGKILL, {4}),
    "zygote killed": ("zygote", signal.SIGKILL, {4}),
    "ctrl-c": ("command", signal.SIGINT, {130}),
    "terminated": ("command", signal.SIGTERM, {143}),
}


@pytest.mark.parametrize("point", range(POINTS))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_ends_whatever_happens_whenever(fault, point, duration, tmp_path):
    who, number, codes = FAULTS[fault]
    shared = set(os.listdir("/dev/shm"))
    run = start(tmp_path / "run")
    folder = tmp_path / "run"
    struck = None
    begin = time.monotonic()
    at = begin + duration * (point + 0.5) / POINTS
    while time.monotonic() < at or struck is None:
        if run.process.poll() is not None:
            break
        if time.monotonic() >= at and (pid := victims(run).get(who)):
            everybody = run.everyone()
            os.kill(pid, number)
            struck = time.monotonic()
        time.sleep(0.002)
    code = run.end()
    errors = run.error_text()
    print(f"{fault} at {at - begin:.2f} s: exit code {code}, {errors.partition(chr(10))[0]}")
    if struck is None or code == 0:  # it was over, or all but over, before
        assert code == 0, errors
    else:
        assert code in codes, errors
        assert errors.lstrip().startswith("prism: "), errors
        if number in (signal.SIGKILL, signal.SIGSTOP):
            assert who.split()[0] in errors
        limit = WITHIN_S + (5.0 if number == signal.SIGSTOP else 0.0)
        run.assert_gone(everybody)
        assert time.monotonic() - struck < limit
    assert set(os.listdir("/dev/shm")) <= shared
    left = [name for name in os.listdir(folder) if name not in ("tmp", "stderr.txt", "out.prism")]
    assert not left
    if (folder / "out.prism").exists():  # complete
        command = [sys.executable, "-m", "prismllm", "info", "--json", "-", folder / "out.prism"]
        assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
