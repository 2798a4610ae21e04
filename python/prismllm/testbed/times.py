"""Iteration times as programs tell them: each rank prints a line `TIMES {"rank": 0, "iter_s": [0.41, ...]}`, rank 0 one
`RESULT {"losses": [...], ...}` if it has any."""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import dataclass, field

from prismllm.launch import LaunchError, LaunchResult

WARM_UP = 2  # iterations that do not count
_LONGEST_LINE = 1 << 22


@dataclass(frozen=True)
class Run:
    iter_s: list[float]  # of each iteration the time of the rank that took longest
    result: dict = field(default_factory=dict)  # what rank 0 printed as RESULT
    wall_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def iteration_s(self) -> float:
        """The median, without the iterations in which the job warms up."""
        return statistics.median(self.iter_s[WARM_UP:])


@dataclass(frozen=True)
class Runs:
    runs: list[Run]

    @property
    def iteration_s(self) -> float:
        return statistics.median(run.iteration_s for run in self.runs)

    @property
    def spread(self) -> float:
        """Of the runs: from the fastest to the slowest, beside their median. No error below it means anything."""
        times = [run.iteration_s for run in self.runs]
        return (max(times) - min(times)) / self.iteration_s

    def to_json(self) -> dict:
        return {
            "iteration_time_s": self.iteration_s,
            "spread": self.spread,
            "runs": [{"iteration_time_s": run.iteration_s, "iter_s": run.iter_s, "wall_s": run.wall_s,
                      **({"result": run.result} if run.result else {})} for run in self.runs],
        }  # fmt: skip


def repeated(bed, program, ranks: int, repeat: int, **options) -> Runs:
    """The same run again and again, on one testbed."""
    return Runs([bed.run(program, ranks, **options) for _ in range(repeat)])


def read_times(log_dir: str, ranks: int, done: LaunchResult) -> Run:
    """From what the ranks have printed. LaunchError, with exit code 3, where the program does not tell."""
    columns = [_iter_s(os.path.join(log_dir, f"rank{rank}.out"), rank) for rank in range(ranks)]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1 or min(lengths) <= WARM_UP:
        counts = ", ".join(map(str, sorted(lengths)))
        raise LaunchError(f"iter_s of {counts} iterations; accepted: as many at each rank, more than {WARM_UP}", 3)
    result = read_line(os.path.join(log_dir, "rank0.out"), "RESULT ", 0) or {}
    return Run([max(times) for times in zip(*columns, strict=True)], result, done.wall_s, done.notes)


def read_line(path: str, word: str, rank: int) -> dict | None:
    with open(path, errors="replace") as file:
        while line := file.readline(_LONGEST_LINE):
            if not line.startswith(word):
                continue
            try:
                told = json.loads(line[len(word) :])
            except (ValueError, RecursionError):
                told = None
            if not isinstance(told, dict):
                raise LaunchError(f"rank {rank} printed '{line[:80].rstrip()}'; accepted: {word}and a JSON object", 3)
            return told
    return None


def _iter_s(path: str, rank: int) -> list[float]:
    line = read_line(path, "TIMES ", rank)
    if line is None:
        raise LaunchError(f'rank {rank} printed no line TIMES {{"rank": {rank}, "iter_s": [...]}}', 3)
    times = line.get("iter_s")
    good = isinstance(times, list) and all(type(time) in (int, float) and 0 < time < math.inf for time in times)
    if not good:
        raise LaunchError(f"rank {rank} printed iter_s = {str(times)[:80]}; accepted: a list of seconds above 0", 3)
    return times
