"""The zygote: imports torch once, forks the coordinator and the ranks, and watches over them.

It talks to the command line in JSON lines over a socket: `warm`, `started`, `exit` of each process, `failed`, `end`. It
stops the run when that socket closes, at SIGTERM, or when its parent dies. It must have one thread when it forks."""

from __future__ import annotations

import gc
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque

from prismllm.launch.coordinator import run_coordinator, run_relay
from prismllm.launch.environment import rank_environment, reserve_port
from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.processes import become_subreaper, die_with_parent, kill_below, reap, thread_names, work_done
from prismllm.launch.rank import become_child, run_rank
from prismllm.launch.warm import NotSingleThreaded, driver_unasked, preload, settle, warm_torch

_UNWIND_S = 2.0  # after the first failure: for ranks to show where they were, and for SIGTERM to be handled
_COORDINATOR_S = 10.0  # for the coordinator to end after the last rank; where it writes tensors, to get on with it
_LOOK_AGAIN = 0  # in place of a signal


class Zygote:
    def __init__(self, options: LaunchOptions, control: socket.socket):
        self.options = options
        self.folder = RunFolder(options.run_dir)
        self.control = control
        self.pids: dict[int, int] = {}  # pid -> rank, -1: the coordinator
        self.deadlines: list[tuple[float, int]] = []  # (when, signal to the ranks; SIGKILL: to all)
        self.signalled: set[int] = set()  # who has been asked to end
        self.ending = self.terminated = False
        self.coordinator_work: tuple | None = None
        self.to_come = deque(() if options.inputs else options.ranks)
        self.solo = None  # prismllm.solo.running.Solo, where ranks run alone
        self.at_a_time = options.slots if options.inputs else len(options.ranks)
        self.more_ranks_fd = -1
        self.pid = os.getpid()
        self.wakeup, wakeup_in = socket.socketpair()
        reserved = reserve_port()
        # For rank 0's store.
        self.master = (options.master_addr, options.master_port or reserved.getsockname()[1])
        self.own_fds = [control.fileno(), self.wakeup.detach(), wakeup_in.detach(), reserved.detach()]
        self.own_fds += [options.slices_fd] if options.slices_fd >= 0 else []
        for fd in self.own_fds[1:3]:
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.own_fds[2], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.terminate)
        self.selector = selectors.PollSelector()  # holds no descriptor of its own
        self.selector.register(self.own_fds[0], selectors.EVENT_READ)
        self.selector.register(self.own_fds[1], selectors.EVENT_READ)

    def tell(self, event: str, **values) -> None:
        try:
            self.control.sendall(json.dumps({"event": event, **values}).encode() + b"\n")
        except OSError:
            self.stop()  # nobody listens any more

    def fork(self, rank: int, log_name: str, body) -> None:
        options = self.options
        try:
            pid = os.fork()
        except OSError as reason:
            what = "the coordinator" if rank < 0 else f"rank {rank}"
            self.tell("failed", text=f"{what} cannot be forked: {reason.strerror} (see prism doctor)")
            self.stop()
            return
        if pid == 0:
            code = 1
            try:
                for fd in self.own_fds:
                    os.close(fd)
                become_child(self.pid, os.path.join(options.log_dir, log_name))
                code = body()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        self.pids[pid] = rank

    def run(self) -> None:
        options = self.options
        address = f"prism-{secrets.token_hex(16)}"
        if options.inputs:
            options.more_ranks_fd, self.more_ranks_fd = os.pipe()
            self.own_fds.append(self.more_ranks_fd)
        if options.route == "capture":
            serve = run_relay if options.relay else run_coordinator
            self.fork(-1, "coordinator", lambda: serve(options, address))
            for name in ("link_fd", "more_ranks_fd"):
                if (fd := getattr(options, name)) >= 0:
                    os.close(fd)
                    setattr(options, name, -1)
        self.start_ranks(address)
        self.tell("started", pids={rank: pid for pid, rank in self.pids.items()})
        while self.pids:
            self.poll(1.0)
            self.start_ranks(address)
        if self.terminated:
            self.tell("failed", text="the zygote was ended by SIGTERM")
        left = kill_below(self.pid)  # what ranks have left: loader workers, daemons
        self.tell("end", left=left)

    def next_batch(self) -> list[int]:
        """Of ranks that run alone."""
        try:
            return self.solo.batch()
        except Exception:
            self.end(0.0)
            self.tell("failed", text="which ranks run next could not be found:\n" + traceback.format_exc().rstrip())
            return []

    def start_ranks(self, address: str) -> None:
        """As many as may be there at a time."""
        options = self.options
        if self.solo and not self.ending and not self.to_come and not self.ranks_here():
            self.to_come.extend(self.next_batch())
            if not self.to_come and self.more_ranks_fd >= 0:
                os.close(self.more_ranks_fd)
                self.more_ranks_fd = -1
                self.wait_for_coordinator()
        while self.to_come and not self.ending and self.ranks_here() < self.at_a_time:
            rank = self.to_come.popleft()
            environment = rank_environment(rank, options.world_size, options.ranks_per_node, self.master)
            environment |= {"PRISM_ROUTE": options.route, "PRISM_RECORD": self.folder.fragments}
            if options.route == "capture":
                environment["PRISM_COORDINATOR"] = address
            if options.backend:
                environment["PRISM_BACKEND"] = options.backend
            environment |= options.memory_environment()
            self.fork(rank, f"rank{rank}", lambda: run_rank(options, rank, environment))  # noqa: B023 (runs at once)
            self.poll(0)

    def ranks_here(self) -> int:
        return len(self.pids) - (-1 in self.pids.values()) if self.options.inputs else 0

    def poll(self, timeout_s: float) -> None:
        now = time.monotonic()
        if self.deadlines:
            timeout_s = min(timeout_s, max(0.0, self.deadlines[0][0] - now))
        for key, _ in self.selector.select(timeout_s):
            if key.fd == self.own_fds[1]:
                while True:
                    try:
                        os.read(key.fd, 4096)
                    except BlockingIOError:
                        break
            else:
                self.selector.unregister(key.fd)  # the command line never speaks: this is its end
                self.stop()
        for pid, status in reap():
            self.child_changed(pid, status)
        while self.deadlines and self.deadlines[0][0] <= time.monotonic():
            action = self.deadlines.pop(0)[1]
            if action != _LOOK_AGAIN:
                self.signal_all(action)
            elif set(self.pids.values()) == {-1}:
                self.wait_for_coordinator()

    def child_changed(self, pid: int, status: int) -> None:
        rank = self.pids.get(pid)
        if rank is None:
            return  # a rank's child that outlived its parent
        stopped = os.WIFSTOPPED(status)
        if not stopped:
            del self.pids[pid]
        # A rank that comes to its program's end says so in its status file.
        unfinished = status == 0 and rank >= 0 and not os.path.exists(self.folder.rank_status(rank))
        self.tell("stopped" if stopped else "exit", rank=rank, status=status, ours=pid in self.signalled,
                  unfinished=unfinished, time_ns=time.monotonic_ns())  # fmt: skip
        if unfinished or (status != 0 and not (stopped and self.options.route == "real")):
            # After the coordinator's error every rank gets it and unwinds, which shows where in the program it was.
            self.end(_UNWIND_S if rank < 0 and os.WIFEXITED(status) else 0.0)
        elif set(self.pids.values()) == {-1} and not self.ending and not self.others_may_come():
            self.wait_for_coordinator()

    def others_may_come(self) -> bool:
        """To the coordinator, although no rank is here."""
        return bool(self.options.hosts or self.options.relay or self.solo)

    def wait_for_coordinator(self) -> None:
        """To its end, or until it does nothing any more: it may have gigabytes of tensors to write."""
        (pid,) = self.pids
        done = work_done(pid) if self.options.data_dir else ()
        idle = done == self.coordinator_work
        self.coordinator_work = done
        if idle:
            self.signal_all(signal.SIGKILL)
        else:
            self.deadlines.append((time.monotonic() + _COORDINATOR_S, _LOOK_AGAIN))

    def terminate(self, *_) -> None:
        self.terminated = True
        self.stop()

    def stop(self) -> None:
        self.end(0.0)

    def end(self, unwind_s: float) -> None:
        """Ends the run: SIGTERM to the ranks after `unwind_s`, SIGKILL to everybody a while after."""
        if self.ending:
            return
        self.ending = True
        now = time.monotonic()
        self.deadlines = [(now + unwind_s, signal.SIGTERM), (now + unwind_s + _UNWIND_S, signal.SIGKILL)]

    def signal_all(self, number: int) -> None:
        for pid, rank in self.pids.items():
            if rank >= 0 or number == signal.SIGKILL:
                self.signalled.add(pid)
                os.kill(pid, number)  # our unreaped child: the pid cannot be another's
                os.kill(pid, signal.SIGCONT)  # SIGTERM does not end a stopped process


def _load_rules(options: LaunchOptions) -> str:
    """What is wrong with them, or nothing."""
    from prismllm.inputs.loading import RulesError, load, played

    try:
        options.rules = load(options.inputs, options.world_size)
        if options.played:
            options.rules.append(played(options.played, options.world_size, options.played_whole_numbers))
    except RulesError as reason:
        return str(reason)
    return f"--inputs: '{options.inputs}' starts threads; accepted: none" if len(thread_names()) > 1 else ""


def main() -> None:
    path, control_fd, parent, _, *skip = sys.argv[1:]
    die_with_parent(int(parent), signal.SIGTERM)
    become_subreaper()
    control = socket.socket(fileno=int(control_fd))
    options = LaunchOptions.load(path)
    from prismllm import takeover

    begin = time.monotonic()
    gc.disable()  # a collection before the fork leaves holes whose pages the children then copy
    try:
        with driver_unasked():
            warm_torch(options.run_dir)
            if len(thread_names()) > 1:
                raise NotSingleThreaded("torch")
            takeover.install(options.route)
            preloaded = preload(options.program, frozenset(skip))
    except NotSingleThreaded as reason:
        if reason.module in ("torch", *skip):
            raise
        control.set_inheritable(True)  # begin again without that package; each rank will import it itself
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], reason.module])
    wrong = _load_rules(options) if options.inputs else ""  # before signals are handled: it is the user's code
    zygote = Zygote(options, control)
    if wrong:
        zygote.tell("failed", text=wrong, exit_code=2)
        zygote.tell("end", left=[])
        return
    if options.inputs:
        from prismllm.solo.running import Solo
        from prismllm.timing.running import Slices

        solo = Solo(options, options.rules) if options.slices_fd < 0 else Slices(options.slices_fd, zygote.tell)
        zygote.solo = solo
    take_back = settle(len(options.ranks))
    zygote.tell("warm", seconds=time.monotonic() - begin, preloaded=preloaded, skipped=skip)
    zygote.run()
    take_back()
