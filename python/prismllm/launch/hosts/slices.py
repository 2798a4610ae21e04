"""The head's side of `prism time`: agents run slices of ranks that run alone, each the next one when it is free, run
after run on one connection."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from prismllm.launch.handout import Handout
from prismllm.launch.hosts.channel import ChannelError
from prismllm.launch.hosts.head import Offer, RemoteHost, RemoteHosts
from prismllm.launch.hosts.job import job_of, program_digest
from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.supervisor import Company, is_failure


class SliceHost(RemoteHost):
    """An agent while one run lasts; its ranks are those that it has been given so far."""

    def __init__(self, offer: Offer, folder: RunFolder, log_dir: str, take: Callable[[], list[int]]):
        super().__init__(offer, folder, log_dir, [])
        self.take = take

    def __str__(self) -> str:
        return f"host {self.name}"

    def begin(self, job: dict, timeout_s: float) -> None:
        self.channel.socket.settimeout(timeout_s)
        self.start(job)

    def end(self) -> None:
        """Its ranks are to end; it says when they have."""
        with contextlib.suppress(ChannelError):  # its silence will tell
            self.channel.send({"end": True})

    def lose(self, why: str) -> None:
        super().lose(why)
        self.channel.close()

    def leave(self) -> None:
        """The connection is for the next run, too."""

    def _handle(self, message: dict, data: bytes) -> None:
        if "free" not in message:
            return super()._handle(message, data)
        ranks = self.take()
        self.ranks += ranks
        self.channel.send({"slice": ranks})


class SliceHosts(RemoteHosts):
    """All hosts, this one's zygote among them."""

    def __init__(self, offers: list[Offer], folder: RunFolder, options: LaunchOptions, slices: list[list[int]]):
        self.left, self.handout, self.over = deque(slices), Handout(), False
        hosts = [SliceHost(offer, folder, options.log_dir, self.take) for offer in offers]
        super().__init__(hosts, options.host_timeout_s)

    def take(self) -> list[int]:
        return self.left.popleft() if self.left else []

    def on_event(self, event: dict) -> None:
        if event["event"] == "free":
            self.handout.give(self.take())
        elif event["event"] == "failed" or (event["event"] in ("exit", "stopped") and is_failure(event, "capture")):
            self.end()

    def stop(self, why: str) -> None:
        self.left.clear()
        super().stop(why)

    def turn(self) -> None:
        super().turn()
        self.handout.flush()
        if any(host.exits or host.failure for host in self.hosts):
            self.end()

    def end(self) -> None:
        """One rank has failed: all others end as well."""
        if self.over:
            return
        self.over = True
        self.left.clear()
        for host in self.hosts:
            if not host.done:
                host.end()


@contextlib.contextmanager
def on_all_hosts(
    options: LaunchOptions, folder: RunFolder, slices: list[list[int]], offers: list[Offer]
) -> Iterator[tuple[LaunchOptions, Company]]:
    """For run_program()."""
    company = SliceHosts(offers, folder, options, slices)
    job = job_of(options, program_digest(options)) | {"slices": {
        "inputs": options.inputs, "quick": options.quick, "played": options.played,
        "played_whole_numbers": options.played_whole_numbers,
    }}  # fmt: skip
    with contextlib.closing(company.handout):
        for host in company.hosts:
            host.begin(job, options.host_timeout_s)
        yield replace(options, slices_fd=company.handout.fd), company
