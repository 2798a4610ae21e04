"""The command line's side of a run: starts the zygote, passes on what the ranks print, and ends everything whatever
happens. Imports neither torch nor our extension modules."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from prismllm.launch.logs import LogFollower, lead_nowhere
from prismllm.launch.options import LaunchOptions, RunFolder, read_status
from prismllm.launch.outcome import Exit, LaunchError, first_cause, last_words
from prismllm.launch.processes import become_subreaper, descendants, describe_status, is_stopped, kill_below

_STOP_S = 8.0  # for the zygote to end its ranks, before everything is killed from here
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPED_S = 2.0  # a zygote that somebody has stopped gets to be continued
_BOOT = """import signal, sys
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.path[:] = [path for path in sys.path if path]
sys.path += [path for path in sys.argv[4:5] if path not in sys.path]
"""


@dataclass
class LaunchResult:
    wall_s: float = 0.0  # from the first fork to the last end
    warm_s: float = 0.0  # until the zygote could fork
    preloaded: list[str] = field(default_factory=list)
    statistics: dict = field(default_factory=dict)  # the coordinator's
    peak_private_bytes: list[int] = field(default_factory=list)  # of the ranks that were measured
    memory: dict[int, dict[str, int]] = field(default_factory=dict)  # of ranks that ran: prismllm.memory.figures()
    notes: list[str] = field(default_factory=list)  # of the ranks, each once


def launch(
    options: LaunchOptions,
    on_event: Callable[[dict], None] = lambda event: None,
    show_output: bool = True,
    out: TextIO | None = None,
    company: Company | None = None,
) -> LaunchResult:
    """Runs all ranks to their end; what they print goes to standard output (or `out`) and standard error. Raises
    LaunchError, after everything has been ended, if the run does not succeed. To be called on the main thread of a
    process that has no other business with its children."""
    folder = RunFolder(options.run_dir)
    _raise_limits(options.world_size)
    with contextlib.ExitStack() as stack:
        run = _Run(options, folder, on_event, show_output, out, company or Company(), stack)
        run.until_end()
    return run.result()


def _raise_limits(world_size: int) -> None:
    """Open files and processes, as far as the hard limits allow; `prism doctor` says what is needed."""
    for limit, wanted in (
        (resource.RLIMIT_NOFILE, 4 * world_size + 256),
        (resource.RLIMIT_NPROC, 16 * world_size + 256),
    ):
        soft, hard = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(limit, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


class Company:
    """The run's other hosts, as far as the supervisor has to do with them; this one stands for none."""

    exits: tuple[Exit, ...] | list[Exit] = ()

    def on_event(self, event: dict) -> None:
        """What the zygote of this host has said."""

    def join(self, selector: selectors.BaseSelector, end_run: Callable[[], None]) -> None:
        """Registers what is to be heard, with a callable as data; `end_run` ends the processes of this host."""

    def stop(self, why: str) -> None:
        """This host's run was asked to end; called inside a signal's handler."""

    def turn(self) -> None:
        """In each turn of the supervisor's loop."""

    def is_awaited(self, ended_here: bool) -> bool:
        """Whether there is still something to hear when the run is over here."""
        return False

    def failures(self) -> list[tuple[int, LaunchError]]:
        """(when, by time.monotonic_ns(); what) of PrismLLM itself elsewhere."""
        return []


def is_failure(event: dict, route: str) -> bool:
    """Whether a process of the run ended, or was stopped, as it should not, and not because the zygote said so."""
    failed = event["status"] or event["unfinished"]
    return bool(failed and not event["ours"] and not (event["event"] == "stopped" and route == "real"))


class _Run:
    def __init__(self, options, folder, on_event, show_output, out, company, stack):
        self.company = company
        self.options, self.folder, self.on_event, self.out = options, folder, on_event, out
        self.exits: list[Exit] = []
        self.outcome = LaunchResult()
        self.failure: LaunchError | None = None
        self.ended = False
        self.interrupted = self.asked = 0
        self.kill_at = self.stopped_at = float("inf")
        self.begin = 0.0
        become_subreaper()
        spare = frozenset(descendants(os.getpid()))
        wakeup_out, wakeup_in = socket.socketpair()
        self.wakeup = wakeup_out
        self.control, theirs = socket.socketpair()
        for end in (wakeup_out, wakeup_in, self.control, theirs):
            end.setblocking(end is theirs)
            stack.callback(end.close)
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wakeup_in.fileno(), warn_on_full_buffer=False))
        for number in (*_ENDING, signal.SIGCHLD):
            handler = self.interrupt if number != signal.SIGCHLD else lambda *_: None
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                stack.callback(signal.signal, number, signal.signal(number, handler))
        if show_output:
            self.logs = LogFollower(options.log_dir, out)
            stack.callback(self.logs.finish)
        stack.callback(kill_below, os.getpid(), spare)
        with open(os.path.join(folder.logs, "zygote.err"), "wb") as errors:
            self.zygote = subprocess.Popen(
                [sys.executable, "-c", _BOOT + "from prismllm.launch.zygote import main; main()", options.save(),
                 str(theirs.fileno()), str(os.getpid()), _package_root()],
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                pass_fds=[theirs.fileno(), *(fd for fd in (options.link_fd, options.slices_fd) if fd >= 0),
                          *options.terminal],
                start_new_session=True, env=_zygote_environment())  # fmt: skip
        theirs.close()
        for fd in (options.link_fd, options.slices_fd):
            if fd >= 0:
                os.close(fd)  # the other end sees at once when who serves it has ended
        self.selector = stack.enter_context(selectors.DefaultSelector())
        for source, action in ((self.control, self.read_events), (wakeup_out, lambda: wakeup_out.recv(4096)),
                               *([(self.logs, self.logs.forward)] if show_output else [])):  # fmt: skip
            self.selector.register(source, selectors.EVENT_READ, action)
        self.company.join(self.selector, self.end_here)
        self.buffer = b""

    def end_here(self) -> None:
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)

    def interrupt(self, number: int, _frame) -> None:
        # Several signals may have come before this handler's turn: each has left a byte.
        with contextlib.suppress(BlockingIOError):
            self.asked += max(0, sum(byte in _ENDING for byte in self.wakeup.recv(4096)) - 1)
        self.asked += 1
        again = self.asked > 1
        self.interrupted = self.interrupted or number
        # Importing, the zygote hears nothing and has no ranks.
        self.kill_at = min(self.kill_at, time.monotonic() + (_STOP_S if self.begin and not again else 0))
        if again:
            lead_nowhere(self.out or sys.stdout)  # where a reader may have stopped to read
        self.end_here()
        self.company.stop(f"ended by {signal.Signals(number).name}")

    def until_end(self) -> None:
        others_later = False
        while time.monotonic() < self.kill_at:
            ended = self.zygote.poll() is not None
            if ended and not self.company.is_awaited(ended):
                break
            others_later |= ended
            for key, _ in self.selector.select(0.5):
                with contextlib.suppress(BlockingIOError):
                    key.data()
            self.watch_stopped()
            self.company.turn()
        if self.zygote.poll() is not None:
            with contextlib.suppress(BlockingIOError, KeyError):
                while self.read_events():
                    pass
        if others_later and self.begin:
            self.outcome.wall_s = time.monotonic() - self.begin

    def watch_stopped(self) -> None:
        if not is_stopped(self.zygote.pid):
            self.stopped_at = float("inf")
            return
        self.stopped_at = min(self.stopped_at, time.monotonic())
        if time.monotonic() - self.stopped_at > _STOPPED_S:
            self.failure = self.failure or LaunchError("the zygote was stopped by a signal", 4)
            self.kill_at = 0.0

    def read_events(self) -> bool:
        try:
            data = self.control.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self.selector.unregister(self.control)
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            self.handle(event)
            self.company.on_event(event)
            self.on_event(event)
        return True

    def handle(self, event: dict) -> None:
        kind = event["event"]
        if kind == "warm":
            self.begin = time.monotonic()
            self.outcome.warm_s, self.outcome.preloaded = event["seconds"], event["preloaded"]
        elif kind in ("exit", "stopped"):
            if is_failure(event, self.options.route):
                self.exits.append(Exit(event["rank"], event["status"], event["time_ns"]))
        elif kind == "failed":
            self.failure = LaunchError(event["text"], event.get("exit_code", 4))
        elif kind == "end":
            self.ended = True
            self.outcome.wall_s = time.monotonic() - self.begin

    def result(self) -> LaunchResult:
        if self.interrupted:
            name = signal.Signals(self.interrupted).name
            raise LaunchError(f"ended by {name}", 128 + self.interrupted)
        exits = [*self.exits, *self.company.exits]
        cause = self.failure or first_cause(self.folder, self.options.log_dir, self.options.world_size, exits,
                                            self.company.failures(),
                                            "the relay" if self.options.relay else "the coordinator")  # fmt: skip
        if not self.ended and (cause is None or cause.exit_code != 4):
            status = self.zygote.returncode
            how = describe_status(-status if status < 0 else status << 8)
            raise LaunchError(f"the zygote {how}{last_words(self.folder.logs, 'zygote.err')}", 4)
        if cause:
            raise cause
        if self.options.route == "capture":
            coordinator = read_status(self.folder.coordinator_status)
            self.outcome.statistics = coordinator.get("statistics", {})
            self.outcome.notes += coordinator.get("notes", [])
        for rank in range(self.options.world_size):
            status = read_status(self.folder.rank_status(rank))
            if "peak_private_bytes" in status:
                self.outcome.peak_private_bytes.append(status["peak_private_bytes"])
            if told := status.get("memory"):
                self.outcome.memory[rank] = told
            self.outcome.notes += [note for note in status.get("notes", []) if note not in self.outcome.notes]
        return self.outcome


def _package_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _zygote_environment() -> dict[str, str]:
    # Where a rank of another run has started this one, that run's variables are not for this one's ranks. One OpenMP
    # thread: a parent whose OpenMP pool has threads hangs its forked children.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PRISM_")}
    return inherited | {"OMP_NUM_THREADS": "1"}
