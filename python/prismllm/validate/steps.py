"""The steps of a validation: commands of prism, each a process of its own, whose results are files in one folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from prismllm.export.atomic import replacing
from prismllm.launch import Program

_STATE = "steps.json"
_END_S = 30.0  # that a command may take to end when it is asked to
# The child ends when this process does, however that ends.
_CHILD = (
    "import signal, sys; from prismllm.launch.processes import die_with_parent; "
    "die_with_parent(int(sys.argv.pop(1)), signal.SIGTERM); from prismllm.cli import main; main()"
)


class StepFailed(Exception):
    def __init__(self, step: str, text: str, exit_code: int):
        super().__init__(f"{step} failed: {text}")
        self.step, self.exit_code = step, exit_code


class Steps:
    """In one folder, which belongs to this process as long as it is a context. A step that was finished there before is
    not done again if its words, the program's file and the steps that it needs are the same. To be used on the main
    thread."""

    def __init__(self, folder: str, program: Program, say: Callable[[str], None], deadline_s: float = 3600.0):
        self.folder, self.say, self.deadline_s = os.path.abspath(folder), say, deadline_s
        self.program = _digest(program.path)
        self.reused = 0
        self._made: set[str] = set()  # in this run, and not found finished

    def __enter__(self) -> Steps:
        os.makedirs(self.folder, exist_ok=True)
        self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.listdir(self.folder) and not os.path.exists(self.path(_STATE)):
                raise OSError(f"'{self.folder}' holds files that are not of an earlier validation")
            self.finished = self._read()
            self._write()
        except BlockingIOError:
            os.close(self._lock)
            raise OSError(f"'{self.folder}' is in use by another run") from None
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_) -> None:
        os.close(self._lock)

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def run(self, step: str, words: Sequence[object], makes: Sequence[str], needs: Sequence[str] = (),
            reads: Sequence[str] = (), keeps: bool = False) -> None:  # fmt: skip
        """`prism WORDS...`, which makes these files of the folder; the steps that it `needs` were run before. `reads`:
        the user's files whose contents count; `keeps`: its options include --run-dir. StepFailed with what the command
        said, and its exit code."""
        told = [self.program, *map(_digest, reads), *map(str, words)]
        ready = self.finished.get(step) == told and not self._made & set(needs)
        if ready and all(os.path.exists(self.path(name)) for name in makes):
            self.reused += 1
            self.say(f"{step}: found finished")
            return
        self.finished.pop(step, None)
        self._write()
        self._made.add(step)
        for name in makes:
            _remove(self.path(name))
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        work = self.path("failed", step.replace(" ", "-"))
        _remove(work)
        options = ["--quiet", *(["--run-dir", work] if keeps else [])]
        begin = time.monotonic()
        self._run(step, [str(words[0]), *options, *map(str, words[1:])])
        self.say(f"{step}: {time.monotonic() - begin:.1f} s")
        _remove(work)
        with contextlib.suppress(OSError):
            os.rmdir(self.path("failed"))
        self.finished[step] = told
        self._write()

    def _run(self, step: str, words: list[str]) -> None:
        errors = self.path("errors.txt")
        with open(errors, "w+b") as said:
            # A session of its own: Ctrl-C comes to this process alone, which hands it on once.
            process = subprocess.Popen([sys.executable, "-c", _CHILD, str(os.getpid()), *words], stderr=said,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       start_new_session=True)  # fmt: skip
            try:
                code = process.wait(self.deadline_s)
            except subprocess.TimeoutExpired:
                _end(process)
                raise StepFailed(step, f"it has not ended within {self.deadline_s:g} s", 3) from None
            except BaseException:
                _end(process)
                raise
            said.seek(0)
            text = said.read().decode(errors="replace").strip()
        if code:
            kind = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise StepFailed(step, text.removeprefix("prism: ") or kind, code if code in (2, 3) else 4)
        _remove(errors)

    def _read(self) -> dict[str, list[str]]:
        """What was finished here before; nothing where the file is damaged."""
        try:
            with open(self.path(_STATE)) as file:
                told = json.load(file)
            good = isinstance(told, dict) and all(isinstance(words, list) for words in told.values())
        except (OSError, ValueError, RecursionError):
            good = False
        return told if good else {}

    def _write(self) -> None:
        with replacing(self.path(_STATE)) as write:
            write(json.dumps(self.finished, indent=1) + "\n")


def _end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    finally:  # also when this process is asked to end a second time
        if process.poll() is None:
            process.kill()
            process.wait()


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def _digest(path: str | None) -> str:
    if path is None:
        return ""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
