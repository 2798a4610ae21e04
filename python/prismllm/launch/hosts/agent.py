"""An agent: offers this host's slots to a head, and runs the ranks that it is given under a supervisor of its own."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

from prismllm.launch.devices import visible_devices
from prismllm.launch.hosts.agent_slices import run_slices
from prismllm.launch.hosts.channel import Channel, ChannelError
from prismllm.launch.hosts.head import TEARDOWN_S
from prismllm.launch.hosts.job import Means, own_versions, program_of
from prismllm.launch.hosts.reporting import HeadOfRun, launched
from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.outcome import LaunchError

_SEND_S = 60.0  # a head that takes nothing for so long is lost
_BETWEEN_RUNS_S = 86400.0  # a head may capture the whole job


def serve(address: tuple[str, int], token: bytes, means: Means, wait_s: float, say: Callable[[str], None]) -> None:
    """Takes part in one capture, or in the runs of one `prism time`. Raises LaunchError where it did not succeed, or
    where no head was found in time."""
    if devices := visible_devices():
        raise LaunchError(f"{devices} accelerators are visible here, which hosts of one capture cannot use yet; for "
                          "a program that uses none, set CUDA_VISIBLE_DEVICES= in the environment", 2)  # fmt: skip
    deadline = time.monotonic() + wait_s
    where = f"{address[0]}:{address[1]}"
    channel = Channel(_connect(address, deadline), max(1.0, deadline - time.monotonic()))
    try:
        channel.greet_head(token)
        channel.send({"name": socket.gethostname(), "slots": means.slots, "versions": own_versions()})
        say(f"connected to {where}, waiting for the other hosts")
        if (job := _next_job(channel)) is None:
            return say("there are more hosts than ranks: nothing to do here")
    except (ChannelError, KeyError, TypeError) as why:
        raise LaunchError(f"the head at {where}: {why}", 4) from None
    with contextlib.closing(channel):
        if "slices" not in job:
            return _run(channel, address, job, means, say)
        while job is not None:
            failure = run_slices(channel, job, means, say)
            if failure is not None and failure.exit_code != 3:
                raise failure
            job = _following_job(channel, where, failure)


def _next_job(channel: Channel) -> dict | None:
    while "job" not in (message := channel.receive()):  # signs of life
        if "refused" in message:
            raise LaunchError(str(message["refused"]), 4)
    if (job := message["job"]) is not None:
        job["clock_ns"] = job["now_ns"] - time.monotonic_ns()
        channel.socket.settimeout(_SEND_S)
    return job


def _following_job(channel: Channel, where: str, failure: LaunchError | None) -> dict | None:
    """After a run of slices, in which a rank may have failed: the head may capture the job before it goes on."""
    channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        channel.socket.setsockopt(socket.IPPROTO_TCP, option, value)  # a head whose host has gone is noticed so
    channel.deadline = time.monotonic() + _BETWEEN_RUNS_S
    try:
        return _next_job(channel)
    except (ChannelError, KeyError, TypeError) as why:
        raise failure or LaunchError(f"the head at {where}: {why}", 4) from None


def _connect(address: tuple[str, int], deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address, timeout=max(0.1, deadline - time.monotonic()))
        except OSError as reason:
            if time.monotonic() > deadline:
                text = f"no head answers at {address[0]}:{address[1]}: {reason.strerror or reason}"
                raise LaunchError(text, 4) from None
        time.sleep(0.2)  # it may not have been started yet


def _run(channel: Channel, address: tuple[str, int], job: dict, means: Means, say: Callable[[str], None]) -> None:
    ranks = range(job["first_rank"], job["first_rank"] + job["ranks"])
    say(f"runs ranks {ranks.start} to {ranks.stop - 1} of {job['world_size']}")
    head = HeadOfRun(channel, job["clock_ns"], job["host_timeout_s"] + TEARDOWN_S)
    head.ranks = ranks
    if failure := launched(head, lambda folder: _options(job, means, folder, channel, address)):
        raise failure


def _options(job: dict, means: Means, folder: RunFolder, channel: Channel,
             address: tuple[str, int]) -> LaunchOptions:  # fmt: skip
    program = program_of(job)
    try:
        link = socket.create_connection((address[0], job["link_port"]), timeout=job["host_timeout_s"] / 2)
    except OSError as reason:
        text = f"the head's port {job['link_port']} cannot be reached: {reason.strerror or reason}"
        raise LaunchError(text, 4) from None
    link.setblocking(False)
    relay = {"host": job["host"], "proof": channel.prove("relay").hex()}
    return LaunchOptions(
        route="capture",
        world_size=job["world_size"],
        program=program,
        run_dir=folder.path,
        log_dir=folder.logs,
        ranks_per_node=job["ranks_per_node"],
        environment=job["environment"],
        memory_budget_bytes=means.memory_budget_bytes,
        spill_dir=means.spill_dir,
        first_rank=job["first_rank"],
        ranks_here=job["ranks"],
        relay=relay | {"coordinators_proof": channel.prove("coordinator").hex()},
        link_fd=link.detach(),
        host_timeout_s=job["host_timeout_s"],
        memory_limit_bytes=job["memory_limit_bytes"],
        communicator_memory_bytes=job["communicator_memory_bytes"],
        master_addr=job["master_addr"],
        master_port=job["master_port"],
    )
