"""`prism` without the import of torch, which takes most of a small run: commands are forks of a process that has it.

A command is a fork of that process and its zygote a fork of the command, in the place of two new interpreters; from
then on all is as always. All have the seed of hashes and the addresses of that process: how processes start and end,
and that other processes do the same, is tested with new ones (marker cold_start, test_programs, test_faults)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

_MESSAGE = 1 << 20
_START_S = 600  # for importing torch, whatever else the machine does


class WarmPrism:
    """The tests' side. Belongs to one thread; ends with close()."""

    def __init__(self, environment: dict[str, str]):
        """`environment` is that of all commands."""
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.environment = environment
        with theirs:
            self.parent = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd="/",
                stdin=subprocess.DEVNULL, start_new_session=True, env=environment)  # fmt: skip

    def is_as(self, environment) -> bool:
        """Whether commands would find this environment, but for what pytest and torch set in the tests' own process."""
        changed = environment.items() ^ self.environment.items()
        return {name for name, _ in changed} <= {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}

    def run(self, arguments: list[str], cwd: Path, timeout: float) -> subprocess.CompletedProcess:
        """As subprocess.run() with the output captured as text and nothing to read."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            request = json.dumps({"arguments": arguments, "cwd": str(cwd)}).encode()
            socket.send_fds(self.socket, [request], [theirs.fileno(), out.fileno(), errors.fileno()])
            theirs.close()
            ours.settimeout(_START_S)
            pid = json.loads(ours.recv(_MESSAGE))
            ours.settimeout(timeout)
            try:
                status = json.loads(ours.recv(_MESSAGE))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)  # its parent waits for it until we have heard how it ended
                raise subprocess.TimeoutExpired(["prism", *arguments], timeout) from None
            texts = []
            for file in (out, errors):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["prism", *arguments], os.waitstatus_to_exitcode(status), *texts)

    def close(self) -> None:
        self.socket.close()
        self.parent.wait(60)


def _serve(requests: socket.socket) -> None:
    import torch  # noqa: F401

    from prismllm.launch import warm
    from prismllm.launch.zygote import main as zygote_main

    with tempfile.TemporaryDirectory() as folder, warm.driver_unasked():
        warm.warm_torch(folder)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that tell how commands ended
    while True:
        request, fds, _, _ = socket.recv_fds(requests, _MESSAGE, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _tell(json.loads(request), *fds, zygote_main)
        for fd in fds:
            os.close(fd)


def _tell(request: dict, answers: int, out: int, errors: int, zygote_main) -> None:
    """Forks the command and tells its pid and its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told = socket.socket(fileno=answers)
    pid = os.fork()
    if pid == 0:
        told.close()
        _as_process(lambda: _command(request, out, errors, zygote_main))
    told.send(json.dumps(pid).encode())
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(OSError):
        told.send(json.dumps(status).encode())
    os._exit(0)


def _as_process(body) -> None:
    """Runs `body` as the whole of a forked process."""
    code = 1
    try:
        body()
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _streams(stdin: int, stdout: int, stderr: int) -> None:
    for fd, source in enumerate((stdin, stdout, stderr)):
        os.dup2(source, fd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _command(request: dict, out: int, errors: int, zygote_main) -> None:
    from prismllm import cli
    from prismllm.launch import supervisor

    _streams(0, out, errors)
    os.close(out)
    os.close(errors)
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    sys.argv = [str(Path(cli.__file__).with_name("__main__.py")), *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", "prismllm", *request["arguments"]]
    supervisor.subprocess = _Forking(zygote_main)
    cli.main()


class _Forking:
    """The module subprocess for the supervisor, with which it starts the zygote and nothing else."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, zygote_main):
        self.zygote_main = zygote_main

    def Popen(self, command, *, stdin, stdout, stderr, pass_fds, start_new_session, env):
        assert (stdin, stdout, start_new_session) == (subprocess.DEVNULL, stderr, True)
        sys.stdout.flush()
        sys.stderr.flush()
        return _Zygote(command, stdout.fileno(), pass_fds, env, self.zygote_main)


class _Zygote:
    def __init__(self, command: list[str], output: int, pass_fds: list[int], environment: dict, main):
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            _as_process(lambda: self._run(command, output, pass_fds, environment, main))

    @staticmethod
    def _run(command: list[str], output: int, pass_fds: list[int], environment: dict, main) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        _streams(null, output, output)
        kept = sorted({0, 1, 2, *pass_fds})
        for low, high in zip(kept, [*kept[1:], 1 << 20], strict=True):
            os.closerange(low + 1, high)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["-c", *command[3:]]
        sys.orig_argv = command
        del sys.path[0]
        main()

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
