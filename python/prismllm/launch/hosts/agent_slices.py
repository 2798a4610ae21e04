"""An agent of `prism time`: runs slices of ranks that run alone, each when the head has one for a host that is free."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from prismllm.launch.handout import Handout
from prismllm.launch.hosts.channel import Channel
from prismllm.launch.hosts.head import TEARDOWN_S
from prismllm.launch.hosts.job import Means, program_of
from prismllm.launch.hosts.reporting import HeadOfRun, launched
from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.outcome import LaunchError
from prismllm.launch.steady import processors_awake


def run_slices(channel: Channel, job: dict, means: Means, say: Callable[[str], None]) -> LaunchError | None:
    """Those that the head gives to this host, until there are no more."""
    say(f"runs slices of the {job['world_size']} ranks of {job['program']['name']}")
    head = HeadOfSlices(channel, job["clock_ns"], job["host_timeout_s"] + TEARDOWN_S)
    with contextlib.closing(head.handout), processors_awake():
        return launched(head, lambda folder: slice_options(job, means, folder, head.handout.fd))


def slice_options(job: dict, means: Means, folder: RunFolder, slices_fd: int) -> LaunchOptions:
    program, values = program_of(job), job["slices"]
    for what, path in (("rules", values["inputs"]), ("recording", values["played"])):
        if path not in ("", "builtin") and not os.path.exists(path):
            raise LaunchError(f"the {what} '{path}' of the head cannot be seen here", 4)
    return LaunchOptions(
        route="capture",
        world_size=job["world_size"],
        program=program,
        run_dir=folder.path,
        log_dir=folder.logs,
        ranks_per_node=job["ranks_per_node"],
        environment=job["environment"],
        slots=means.slots,
        memory_budget_bytes=means.memory_budget_bytes,
        spill_dir=means.spill_dir,
        host_timeout_s=job["host_timeout_s"],
        memory_limit_bytes=job["memory_limit_bytes"],
        communicator_memory_bytes=job["communicator_memory_bytes"],
        classes=False,
        timed=True,
        slices_fd=slices_fd,
        **values,
    )


class HeadOfSlices(HeadOfRun):
    """The same where ranks run alone: the head says which, when this host's zygote asks."""

    def __init__(self, channel: Channel, clock_ns: int, silence_s: float):
        super().__init__(channel, clock_ns, silence_s)
        self.handout, self.ranks, self.over = Handout(), [], False

    def on_event(self, event: dict) -> None:
        super().on_event(event)
        if event["event"] == "free":
            self._send({"free": True})

    def hear(self, message: dict) -> None:
        if isinstance(ranks := message.get("slice"), list):
            self.ranks += ranks
            self.handout.give(ranks)
        elif "end" in message:
            self.ended_by_head.append((time.monotonic_ns() - 1_000_000_000, LaunchError("a rank failed elsewhere", 3)))
            self.end_run()

    def turn(self) -> None:
        super().turn()
        if self.ended_by_head and not self.over:  # the zygote may be waiting for an answer that nobody gives any more
            self.over = True
            self.handout.give([])
        self.handout.flush()
