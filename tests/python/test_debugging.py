"""prism emulate --debug: breakpoints of real ranks (docs/uses.md)."""

import json
import subprocess
import sys
import time

import pytest

STOPS = """
import datetime, pdb, sys
import torch, torch.distributed as dist
import prismllm
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
rank = dist.get_rank()
for step in range(4):
    prismllm.iteration()
    prismllm.spin(0.01)
    if "stop" in sys.argv and (step == 3 or (step, rank) == (1, 1)):
        breakpoint() if step == 1 else pdb.set_trace()
    x = torch.full((10,), float(rank + step))
    dist.all_reduce(x)
print("RESULT", rank, x[0].item())
"""


@pytest.fixture
def debugged(captured, tmp_path):
    """Emulates ranks 0 and 1 of 4; what is `typed` comes `after_s` seconds after the first prompt. Returns (exit code,
    standard output, standard error, summary)."""
    trace, *_ = captured(STOPS, "--data", tmp_path / "all.data")

    def run(typed, after_s):
        command = [sys.executable, "-m", "prismllm", "emulate", trace.path, "--debug", "--ranks", "0,1", "--data",
                   "all.data", "-o", "emu.prism", "--json", "emu.json", "program.py", "stop"]  # fmt: skip
        with subprocess.Popen(command, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as prism:  # fmt: skip
            shown = ""
            while "(rank " not in shown:
                one = prism.stderr.read(1)
                assert one, shown
                shown += one
            time.sleep(after_s)
            out, errors = prism.communicate(typed, timeout=60)
        return prism.returncode, out, shown + errors, json.loads((tmp_path / "emu.json").read_text())

    return run


def test_a_rank_in_a_debugger_does_not_time_the_job_out(debugged):
    """The other real rank waits for three times the timeout of its group. Later both stop, and take turns."""
    typed = "p 6 * 7, rank, step\nn\nc\n" + 2 * "p 'at', rank, step\nc\n"
    code, out, errors, summary = debugged(typed, after_s=3)
    assert code == 0, errors
    assert "(42, 1, 1)" in errors and "-> dist.all_reduce(x)" in errors
    assert "('at', 0, 3)" in errors and "('at', 1, 3)" in errors
    assert sorted(line.split("RESULT ")[1] for line in out.splitlines() if "RESULT" in line) == ["0 18.0", "1 18.0"]
    assert summary["late_issue_s"] == 0
    assert summary["iterations"][1]["time_s"] > 3  # what is spent at a prompt counts as computing


def test_who_leaves_the_debugger_ends_the_run(captured, run_prism, tmp_path):
    """Here by having nothing to read."""
    trace, *_ = captured(STOPS)
    done = run_prism("emulate", trace.path, "--debug", "--ranks", 1, "-o", "emu.prism", "program.py", "stop")
    assert done.returncode == 3 and "BdbQuit" in done.stderr and "prism: rank 1 failed" in done.stderr
    assert "aptured once more" not in done.stderr
