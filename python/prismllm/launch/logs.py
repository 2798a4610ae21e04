"""Follows the ranks' log files and passes on what the programs print, as it comes.

One inotify watch covers the folder, however many ranks write there. Output is raw while one rank prints; once several
do, it goes by lines, each with its rank in front."""

from __future__ import annotations

import codecs
import ctypes
import os
import struct
import sys
from typing import TextIO

_IN_MODIFY, _IN_Q_OVERFLOW = 0x2, 0x4000
_libc = ctypes.CDLL(None, use_errno=True)


_LONGEST_LINE = 1 << 16  # longer ones are broken, where several ranks print


def deliver(stream: TextIO, text: str) -> OSError | None:
    """Writes `text` at once. Where that fails (a reader has gone away, a disk is full) the reason is returned, and the
    stream leads nowhere from then on: nothing fails again, not even at the interpreter's end."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as reason:
        lead_nowhere(stream)
        return reason
    return None


def lead_nowhere(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


class FolderWatch:
    """Tells which files of a folder have been written to, however many there are."""

    def __init__(self, folder: str):
        self.folder = folder
        self.fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0 or _libc.inotify_add_watch(self.fd, os.fsencode(folder), _IN_MODIFY) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify on {folder} was refused: {os.strerror(number)}")

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        os.close(self.fd)

    def changed(self) -> list[str]:
        """Names of the files written to since the last call, each once."""
        changed = {}
        while True:
            try:
                events = os.read(self.fd, 65536)
            except BlockingIOError:
                return list(changed)
            at = 0
            while at < len(events):
                _, mask, _, length = struct.unpack_from("iIII", events, at)
                if mask & _IN_Q_OVERFLOW:
                    changed |= dict.fromkeys(os.listdir(self.folder))
                changed[events[at + 16 : at + 16 + length].rstrip(b"\0").decode()] = None
                at += 16 + length


class LogFollower:
    def __init__(self, folder: str, out: TextIO | None = None):
        self.watch = FolderWatch(folder)
        self.folder = folder
        self.out = out  # None: the current sys.stdout, which a progress bar may have replaced
        self.files: dict[str, _LogFile] = {}
        self.only_rank: int | None = None  # who has printed so far, while that is one rank
        self.several = False
        self.last: _LogFile | None = None  # what was written to last, while that is one rank
        self.at_line_start = True

    def fileno(self) -> int:
        return self.watch.fd

    def forward(self) -> None:
        """Passes on what is new in the files that the kernel reports as written to."""
        for name in self.watch.changed():
            self._forward_file(name)

    def finish(self) -> None:
        self.forward()
        for file in self.files.values():
            if file.pending:
                self._write(file, file.pending + "\n")
            os.close(file.fd)
        self.files.clear()
        self.watch.close()

    def _forward_file(self, name: str) -> None:
        stem, suffix = os.path.splitext(name)
        if suffix not in (".out", ".err") or not stem.startswith("rank") or not stem[4:].isdecimal():
            return
        if name not in self.files:
            self.files[name] = _LogFile(os.path.join(self.folder, name), int(stem[4:]), suffix)
        file = self.files[name]
        while text := file.read():
            if self.only_rank not in (None, file.rank) and not self.several:
                self.several = True
                if not self.at_line_start:
                    self._pass_on(self.last, "\n")
            self.only_rank = file.rank
            if not self.several:
                self._pass_on(file, text)
                self.last, self.at_line_start = file, text.endswith("\n")
                continue
            lines = (file.pending + text).split("\n")
            file.pending = lines.pop()
            if len(file.pending) > _LONGEST_LINE:  # to be kept as it grows would take time without end
                lines, file.pending = [*lines, file.pending], ""
            if lines:
                self._write(file, "".join(f"{line}\n" for line in lines))

    def _write(self, file: _LogFile, lines: str) -> None:
        self._pass_on(file, "".join(f"[{file.rank}] {line}" for line in lines.splitlines(keepends=True)))

    def _pass_on(self, file: _LogFile, text: str) -> None:
        reason = deliver(self._target(file), text)
        if reason and not isinstance(reason, BrokenPipeError):
            deliver(sys.stderr, f"prism: what ranks print is not passed on any more: {reason.strerror}\n")

    def _target(self, file: _LogFile):
        return sys.stderr if file.suffix == ".err" else self.out or sys.stdout


class _LogFile:
    def __init__(self, path: str, rank: int, suffix: str):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.rank, self.suffix = rank, suffix
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.pending = ""

    def read(self) -> str:
        while data := os.read(self.fd, 1 << 16):
            if text := self.decoder.decode(data):
                return text
        return ""
