"""An agent: offers this host's slots to a head, runs the ranks that it is given under a supervisor of its own, and
passes on what they print and leave behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from prismllm.launch.devices import visible_devices
from prismllm.launch.hosts.channel import Channel, ChannelError
from prismllm.launch.hosts.head import SIGN_OF_LIFE_S, TEARDOWN_S, own_versions
from prismllm.launch.logs import FolderWatch
from prismllm.launch.options import LaunchOptions, RunFolder, read_status
from prismllm.launch.outcome import LaunchError
from prismllm.launch.program import Program
from prismllm.launch.supervisor import Company, is_failure, launch
from prismllm.launch.temporary import TemporaryFolder

_PIECE = 512 << 10
_SEND_S = 60.0  # a head that takes nothing for so long is lost


@dataclass
class Means:
    """What this host gives."""

    slots: int
    memory_budget_bytes: int = 0
    spill_dir: str = ""


def serve(address: tuple[str, int], token: bytes, means: Means, wait_s: float, say: Callable[[str], None]) -> None:
    """Takes part in one run. Raises LaunchError where it did not succeed, or where no head was found in time."""
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
        first = channel.receive()
        if "refused" in first:
            raise LaunchError(str(first["refused"]), 4)
        if (job := first["job"]) is None:
            return say("there are more hosts than ranks: nothing to do here")
        clock_ns = job["now_ns"] - time.monotonic_ns()
    except (ChannelError, KeyError, TypeError) as why:
        raise LaunchError(f"the head at {where}: {why}", 4) from None
    channel.socket.settimeout(_SEND_S)
    with contextlib.closing(channel):
        _run(channel, address, job, means, clock_ns, say)


def _connect(address: tuple[str, int], deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address, timeout=max(0.1, deadline - time.monotonic()))
        except OSError as reason:
            if time.monotonic() > deadline:
                text = f"no head answers at {address[0]}:{address[1]}: {reason.strerror or reason}"
                raise LaunchError(text, 4) from None
        time.sleep(0.2)  # it may not have been started yet


def _run(channel: Channel, address: tuple[str, int], job: dict, means: Means, clock_ns: int,
         say: Callable[[str], None]) -> None:  # fmt: skip
    ranks = range(job["first_rank"], job["first_rank"] + job["ranks"])
    say(f"runs ranks {ranks.start} to {ranks.stop - 1} of {job['world_size']}")
    head = HeadOfRun(channel, clock_ns, job["host_timeout_s"] + TEARDOWN_S)
    try:
        with TemporaryFolder("agent") as path:
            head.folder = RunFolder(path)
            head.folder.create()
            options = _options(job, means, head.folder, channel, address)
            try:
                launch(options, head.on_event, show_output=False, company=head)
            finally:
                head.pass_on_rest(ranks)
        head.say_last(None)
    except LaunchError as why:
        head.say_last(why)
        raise
    except OSError as why:
        failure = LaunchError(f"{why.strerror or why}{f' ({why.filename})' if why.filename else ''}", 4)
        head.say_last(failure)
        raise failure from None


def _options(job: dict, means: Means, folder: RunFolder, channel: Channel,
             address: tuple[str, int]) -> LaunchOptions:  # fmt: skip
    program = Program(**job["program"])
    try:
        os.chdir(job["folder"])
        program.check()
    except OSError as reason:
        raise LaunchError(f"the folder {job['folder']} cannot be entered: {reason.strerror}", 4) from None
    except ValueError as reason:
        raise LaunchError(str(reason), 4) from None
    if job["digest"] is not None:
        with open(program.path or "", "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != job["digest"]:
                raise LaunchError(f"the program {program.name} is another one here than at the head", 4)
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
        master_addr=job["master_addr"],
        master_port=job["master_port"],
    )


class HeadOfRun(Company):
    """The head, beside this host's supervisor: its end of the connection is the end of the run here."""

    folder: RunFolder
    watch: FolderWatch | None = None

    def __init__(self, channel: Channel, clock_ns: int, silence_s: float):
        self.channel, self.clock_ns, self.silence_s = channel, clock_ns, silence_s
        self.told = False  # the coordinator has said why the run ended
        self.sent: dict[str, int] = {}  # bytes of each log
        self.lost = False
        self.ending: str | None = None  # to be told
        self.said = 0.0
        self.end_run: Callable[[], None] = lambda: None
        self.ended_by_head: list[tuple[int, LaunchError]] = []

    def join(self, selector: selectors.BaseSelector, end_run: Callable[[], None]) -> None:
        def gone(text: str) -> None:
            selector.unregister(self.channel)
            # Before what its end brings about among its ranks is noticed.
            self.ended_by_head.append((time.monotonic_ns() - 1_000_000_000, LaunchError(text, 3)))
            end_run()

        self.end_run, self.gone = end_run, gone
        self.channel.heard = time.monotonic()
        self.watch = FolderWatch(self.folder.logs)
        selector.register(self.channel, selectors.EVENT_READ, self.listen)
        selector.register(self.watch, selectors.EVENT_READ, self.pass_on_logs)

    def stop(self, why: str) -> None:
        self.ending = why

    def listen(self) -> None:
        """Only signs of life come from the head, until its end."""
        try:
            more = self.channel.feed()
            for _ in self.channel.messages():
                pass
        except ChannelError:
            more = False
        if not more:
            self.gone("the head has ended the run, or was killed")

    def turn(self) -> None:
        now = time.monotonic()
        if not self.ended_by_head and now - self.channel.heard > self.silence_s:
            self.gone(f"the head is lost: nothing was heard of it for {self.silence_s:.0f} s")
        if now - self.said > SIGN_OF_LIFE_S:
            self._send({})
        if self.ending:  # before what it brings about among the ranks here
            self._send({"ending": self.ending})
            self.ending = None

    def failures(self) -> list[tuple[int, LaunchError]]:
        return self.ended_by_head

    def on_event(self, event: dict) -> None:
        if event["event"] in ("exit", "stopped") and event["rank"] >= 0 and is_failure(event, "capture"):
            ended = {key: event[key] for key in ("rank", "status")}
            self._send({"exit": ended | {"time_ns": event["time_ns"] + self.clock_ns}})

    def pass_on_logs(self) -> None:
        for name in self.watch.changed():
            if name.startswith("rank") and name.endswith((".out", ".err")):
                self._pass_on("logs", name)

    def pass_on_rest(self, ranks: range) -> None:
        """Everything that the ranks have left."""
        if self.watch:
            self.watch.close()
        for rank in ranks:
            for name in (f"rank{rank}.out", f"rank{rank}.err"):
                self._pass_on("logs", name)
            if status := read_status(self.folder.rank_status(rank)):
                status["time_ns"] += self.clock_ns
                text = json.dumps(status).encode()
                for at in range(0, len(text), _PIECE):
                    self._send({"file": f"status/rank{rank}.json"}, text[at : at + _PIECE])
            self._pass_on("fragments", f"rank-{rank}.prism")
        self.told = read_status(self.folder.coordinator_status).get("told", False)

    def say_last(self, failure: LaunchError | None) -> None:
        """How it ended here, where the head does not know."""
        own = failure is not None and failure.exit_code != 3 and not self.told
        self._send({"done": "ill" if failure else "well", "failure": str(failure) if own else None})

    def _pass_on(self, folder: str, name: str) -> None:
        """What is new in a file."""
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder.path, folder, name), "rb") as file:
            file.seek(self.sent.get(name, 0))
            while data := file.read(_PIECE):
                self._send({"file": f"{folder}/{name}"}, data)
                self.sent[name] = self.sent.get(name, 0) + len(data)

    def _send(self, message: dict, data: bytes = b"") -> None:
        if self.lost:
            return
        self.said = time.monotonic()
        try:
            self.channel.send(message, data)
        except ChannelError:
            self.lost = True
            self.end_run()
