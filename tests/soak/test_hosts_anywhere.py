"""A capture on two hosts, one of which goes away at many points of the run. `make soak`; SOAK_POINTS sets how many
points, 50 by default."""

import os
import signal
import subprocess
import sys
import time

import pytest
from faults import alive
from host_pairs import Job, two_hosts

from prismllm.launch.hosts.head import TEARDOWN_S

POINTS = int(os.environ.get("SOAK_POINTS", "50"))
SILENCE_S = 3  # --host-timeout
WITHIN_S = 5.0  # of the moment when it is noticed
PROGRAM = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(30):
    x = torch.full((1000,), float(step))
    dist.all_reduce(x)
    assert x[0] == 4 * step
dist.barrier()
dist.destroy_process_group()
"""
FAULTS = {
    "the agent is killed": lambda job: job.agent.kill(),
    "the agent is asked to end": lambda job: job.agent.send_signal(signal.SIGTERM),
    "the head is killed": lambda job: job.head.kill(),
    "ctrl-c at the head": lambda job: job.head.send_signal(signal.SIGINT),
    "the link goes down": lambda job: job.cut(),
}


@pytest.fixture(scope="module")
def duration(tmp_path_factory) -> float:
    """Seconds of a run that nobody disturbs."""
    with two_hosts() as hosts:
        begin = time.monotonic()
        job = Job(tmp_path_factory.mktemp("whole"), hosts, PROGRAM)
        assert job.codes() == (0, 0), job.text()
        return time.monotonic() - begin


@pytest.mark.parametrize("point", range(POINTS))
@pytest.mark.parametrize("fault", FAULTS)
def test_both_hosts_end_whatever_happens_whenever(fault, point, duration, tmp_path):
    with two_hosts() as hosts:
        begin = time.monotonic()
        job = Job(tmp_path, hosts, PROGRAM, "--host-timeout", SILENCE_S, "--wait", 5, agent_options=["--wait", 5])
        at = begin + duration * (point + 0.5) / POINTS
        while time.monotonic() < at:
            time.sleep(0.002)
        everybody = job.everyone()
        FAULTS[fault](job)
        struck = time.monotonic()
        head, agent = job.codes()
        print(f"{fault} at {at - begin:.2f} s: {head}, {agent}: {job.text().splitlines()[-1:]}")
        # Whoever was still waiting for the other may do so for its --wait, or until its silence is noticed.
        assert time.monotonic() - struck < WITHIN_S + max(5, SILENCE_S + TEARDOWN_S)
        if head != 0 and fault != "the head is killed":
            assert head in (2, 3, 4, 128 + signal.SIGINT), job.text()
            assert "Traceback" not in job.text() and "prism: " in job.text()
        end = time.monotonic() + WITHIN_S
        while (left := [pid for pid in everybody if alive(pid)]) and time.monotonic() < end:
            time.sleep(0.01)
        assert left == []
    trace = tmp_path / "out.prism"
    if trace.exists():
        command = [sys.executable, "-m", "prismllm", "info", "--json", "-", trace]
        assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    else:
        assert head != 0
