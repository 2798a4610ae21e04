"""Why a run failed: the first cause among what the processes of the run have left behind."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from prismllm.launch.options import RunFolder, partial, read_status
from prismllm.launch.processes import describe_status


class LaunchError(Exception):
    """A run that did not succeed. `exit_code`: 2 wrong use that only the coordinator could see, 3 the program or a rank
    failed, 4 PrismLLM failed, 128 + signal."""

    def __init__(self, message: str, exit_code: int, told: dict | None = None):
        super().__init__(message)
        self.exit_code = exit_code
        self.told = told  # the status of the rank whose program has failed by itself; None: another cause


@dataclass
class Exit:
    rank: int  # -1: the coordinator
    status: int  # as waitpid gives it
    time_ns: int


# A killed rank says nothing itself: its peers may raise because of it before its parent has been told.
_SIGNAL_HEAD_START_NS = 500_000_000
# What Gloo and NCCL say where a peer has gone: a consequence, though it may be known before the peer's end is.
_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "remote process exited")


def first_cause(folder: RunFolder, log_dir: str, world_size: int, exits: list[Exit],
                elsewhere: list[tuple[int, LaunchError]] | None = None,
                server: str = "the coordinator") -> LaunchError | None:  # fmt: skip
    """`exits`: the ends that the zygote did not ask for, of ranks that failed or left before their program's end. What
    a rank has said of itself comes from its status file, however it ended after that. `elsewhere`: (time, what) of
    failures on other hosts."""
    coordinator = read_status(folder.coordinator_status)
    report = (coordinator.get("error") or "").rstrip()
    failures: list[tuple[int, LaunchError]] = list(elsewhere or [])
    where = ""  # in the program the coordinator's report was raised first
    told: dict[int, dict] = {rank: read_status(folder.rank_status(rank)) for rank in range(world_size)}
    for rank, status in told.items():
        if not status.get("error"):
            continue
        text = status["error"].rstrip()
        if _is_reported(report, text) and not status.get("internal"):
            where = where or f"\nrank {rank} was here:\n" + "\n".join(_program_lines(text))
            continue
        text = f"rank {rank} failed:\n{text}" if "\n" in status["error"] else f"rank {rank} {text}"
        late = _SIGNAL_HEAD_START_NS if any(sign in text for sign in _LOST_PEER) else 0
        failure = LaunchError(text, 4) if status.get("internal") else LaunchError(text, 3, status)
        failures.append((status["time_ns"] + late, failure))
    if report:
        failures.append(
            (
                coordinator["time_ns"],
                LaunchError(report, coordinator.get("exit_code", 4 if coordinator.get("internal") else 3)),
            )
        )
    for ended in exits:
        how = describe_status(ended.status)
        if ended.rank < 0:
            if coordinator:
                continue
            if _could_not_write(folder.coordinator_status, ended.status):
                how = f"could not write {folder.coordinator_status} (is the disk full?)"
            return LaunchError(f"{server} {how}{last_words(log_dir, 'coordinator.err')}", 4)
        if told[ended.rank].get("error"):
            continue
        if unwritten := _could_not_write(folder.rank_status(ended.rank), ended.status):
            how = f"could not write {folder.rank_status(ended.rank)} (is the disk full?)"
        elif ended.status == 0:
            how = "left before its program's end (os._exit or exec?), so that nothing of it is recorded"
        head_start = 0 if _aborted(ended.status) else _SIGNAL_HEAD_START_NS
        failures.append((ended.time_ns - head_start, LaunchError(f"rank {ended.rank} {how}", 4 if unwritten else 3)))
    if not failures:
        return None
    first = min(failures, key=lambda failure: failure[0])[1]
    return LaunchError(f"{first}{where}", first.exit_code) if str(first) == report else first


def in_one_line(failure: str) -> str:
    """Of a rank's failure with its traceback: who, and the exception."""
    first, *lines = failure.splitlines() or [""]
    frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    said = [line for line in lines[frames[-1] :] if line[:1] not in ("", " ")] if frames else lines
    return f"{first} {said[0]}" if said and first.endswith(":") else first


def _could_not_write(status_file: str, status: int) -> bool:
    return os.WIFEXITED(status) and os.path.exists(partial(status_file))


def _is_reported(report: str, text: str) -> bool:
    """Whether a rank raised `text` because the coordinator reported `report`, which is not a rank's own error."""
    return bool(report) and not report.startswith("Traceback") and report != text and report.splitlines()[0] in text


def _program_lines(traceback: str) -> list[str]:
    """The frames of a traceback without the error's own text."""
    return [line for line in traceback.splitlines() if line.startswith(("  File ", "    "))]


def last_words(folder: str, log: str) -> str:
    """The last line that a process of ours has written to its log, to follow the sentence that it died."""
    try:
        with open(os.path.join(folder, log), errors="replace") as file:
            said = file.read().rstrip()
    except OSError:
        return ""
    return f": {said.splitlines()[-1]}" if said else ""


def _aborted(status: int) -> bool:
    """By itself, as c10d backends do when a peer has gone: rather a consequence than a cause."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT
