"""What an agent tells the head of a run: what its ranks print and leave behind, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Callable, Sequence

from prismllm.launch.hosts.channel import Channel, ChannelError
from prismllm.launch.hosts.head import SIGN_OF_LIFE_S
from prismllm.launch.logs import FolderWatch
from prismllm.launch.options import LaunchOptions, RunFolder, read_status
from prismllm.launch.outcome import LaunchError
from prismllm.launch.supervisor import Company, is_failure, launch
from prismllm.launch.temporary import TemporaryFolder

_PIECE = 512 << 10


class HeadOfRun(Company):
    """The head, beside this host's supervisor: its end of the connection is the end of the run here."""

    folder: RunFolder
    ranks: Sequence[int] = ()  # here
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
        try:
            more = self.channel.feed()
            for message, _ in self.channel.messages():
                self.hear(message)
        except ChannelError:
            more = False
        if not more:
            self.gone("the head has ended the run, or was killed")

    def hear(self, message: dict) -> None:
        """Only signs of life come from the head, until its end."""

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

    def pass_on_rest(self) -> None:
        """Everything that the ranks have left."""
        if self.watch:
            self.watch.close()
        for rank in self.ranks:
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


def launched(head: HeadOfRun, options: Callable[[RunFolder], LaunchOptions]) -> LaunchError | None:
    """Runs ranks in a folder of their own, and tells the head all about it."""
    failure = None
    try:
        with TemporaryFolder("agent") as path:
            head.folder = RunFolder(path)
            head.folder.create()
            try:
                launch(options(head.folder), show_output=False, company=head)
            finally:
                head.pass_on_rest()
                head.folder.close()
    except LaunchError as why:
        failure = why
    except OSError as why:
        failure = LaunchError(f"{why.strerror or why}{f' ({why.filename})' if why.filename else ''}", 4)
    head.say_last(failure)
    return failure
