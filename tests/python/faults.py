"""Running `prism` as a user does, watching every process of the run, and killing some."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

from prismllm.launch.processes import descendants

LIMIT_S = 60  # how long anything here may take before the test fails


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Run:
    """`prism ARGS` in the background, its standard output read line by line."""

    def __init__(self, *arguments, cwd, python=("-m", "prismllm"), **options):
        command = [sys.executable, *python, *map(str, arguments)]
        self.errors = open(os.path.join(cwd, "stderr.txt"), "w+")  # noqa: SIM115
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, cwd=cwd,
                                        stdin=subprocess.DEVNULL, **options)  # fmt: skip
        self.pid = self.process.pid
        self.text = b""

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the programs have printed `text` that often."""
        end = time.monotonic() + LIMIT_S
        while self.text.count(text.encode()) < times:
            ready, _, _ = select.select([self.process.stdout], [], [], end - time.monotonic())
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert data, f"no '{text}' in {self.text!r}, errors: {self.error_text()}"
            self.text += data

    def everyone(self) -> list[int]:
        return [self.pid, *descendants(self.pid)]

    def zygote(self) -> int:
        return descendants(self.pid)[0]

    def named(self, what: str) -> int:
        """The pid that a rank printed as `what=PID`."""
        return int(self.text.decode().split(what + "=")[1].split()[0])

    def end(self) -> int:
        """The exit code; the run must end by itself."""
        try:
            code = self.process.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        return code

    def error_text(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def assert_gone(self, pids: list[int]) -> None:
        """None of the processes is left, once those that are being ended have had their time."""
        end = time.monotonic() + LIMIT_S
        while left := [pid for pid in pids if alive(pid)]:
            if time.monotonic() > end:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"left behind: {left}")
            time.sleep(0.01)
