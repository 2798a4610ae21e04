"""Process lifetimes on Linux: nobody outlives the run, whoever is killed first."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK, _PR_SET_CHILD_SUBREAPER = 1, 29, 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) was refused")


def die_with_parent(parent: int, sig: int = signal.SIGKILL) -> None:
    """Asks the kernel for `sig` when `parent` (whose pid the caller knew beforehand) dies. The request does not
    survive fork, and is bound to the parent's *thread* that forked: fork ranks from the main thread only."""
    _prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent:  # died before the request
        os.kill(os.getpid(), sig)


def become_subreaper() -> None:
    """Orphans below the caller become its children instead of init's, so that they can be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def fine_timers() -> None:
    """This thread, and those that it starts, wake from sleep when they asked to, not up to 50 us later."""
    _prctl(_PR_SET_TIMERSLACK, 1)


def descendants(root: int) -> list[int]:
    """Living processes below `root`, parents first. Zombies are left out, but not what is below them: a process whose
    main thread has ended is one already while its other threads, and so its children, are still there."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]  # the name may hold any character
        except (OSError, ValueError):
            continue  # gone meanwhile
        children.setdefault(int(parent), []).append(int(entry))
        if state in (b"Z", b"X"):
            zombies.add(int(entry))
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children.get(pid, [])]
        found += [pid for pid in level if pid not in zombies]
    return found


def reap() -> list[tuple[int, int]]:
    """(pid, wait status) of every child that has ended or stopped since the last call; does not block."""
    ended = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def kill_below(root: int, spare: frozenset[int] = frozenset(), deadline_s: float = 5.0) -> list[int]:
    """Kills all below `root` but `spare`, again and again (they may fork meanwhile) until none is left. Returns who
    is left at the deadline: processes that the kernel cannot end, for example in a hung device driver."""
    begin = time.monotonic()
    end = begin + deadline_s
    while left := [pid for pid in descendants(root) if pid not in spare]:
        for pid in left:
            if _removes_what_others_left(pid) and time.monotonic() < begin + deadline_s / 2:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if root == os.getpid():
            reap()
        if time.monotonic() > end:
            return left
        time.sleep(0.002)  # the kernel tears address spaces down
    return []


def _removes_what_others_left(pid: int) -> bool:
    """Python's resource tracker ends by itself when the others of its program have, and removes their shared memory
    and semaphores from /dev/shm before."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.resource_tracker" in file.read()
    except OSError:
        return False


def is_stopped(child: int) -> bool:
    """Whether a child of the caller has been stopped and not continued."""
    try:
        return os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # has ended
        return False


def is_stopped_process(pid: int) -> bool:
    """The same of any process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def work_done(pid: int) -> tuple:
    """Grows as long as the process computes or writes to a disk."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            computed = file.read().rpartition(b")")[2].split()[11:13]
        with open(f"/proc/{pid}/io", "rb") as file:
            written = file.read()
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"D":  # the disk works for it
                    return (time.monotonic(),)
    except OSError:  # it has ended
        return ()
    return (*computed, written)


def describe_status(status: int) -> str:
    """A wait status in words."""
    if os.WIFSTOPPED(status):
        return f"was stopped by {signal.Signals(os.WSTOPSIG(status)).name}"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"was killed by {name}"
    return f"exited with code {os.WEXITSTATUS(status)}"


def thread_names() -> list[str]:
    """Names of all threads of this process, also those that Python does not know."""
    names = []
    for task in sorted(os.listdir("/proc/self/task"), key=int):
        with open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names


def private_bytes() -> tuple[int, int]:
    """(private memory now, the most so far) of this process: unique set size, and that plus what has been given back
    since the peak of the resident set. Pages shared with the parent through fork do not count."""
    with open("/proc/self/smaps_rollup") as file:
        fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line.rstrip().endswith("kB")}
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                highest = int(line.split()[1]) * 1024
    now = fields["Private_Clean"] + fields["Private_Dirty"]
    return now, now + max(0, highest - fields["Rss"])
