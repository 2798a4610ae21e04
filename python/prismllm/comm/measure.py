"""Runs the probe at a place and reads what it has measured."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import statistics
from dataclasses import dataclass

from prismllm.comm.plan import Point
from prismllm.comm.progress import Watch
from prismllm.launch import LaunchError, LaunchOptions, Program, RunFolder, launch
from prismllm.launch.temporary import TemporaryFolder

_MOST_BYTES = 1 << 28  # of a rank's results
_LONGEST_S = 10 * 86400.0  # that backends count in milliseconds


@dataclass(frozen=True)
class Measured:
    """`time_s`: from the moment at which the last member has issued the first round until the last one is done with the
    last, the median of the repetitions; `spread`: half of what is between their quartiles, beside it. `again_s`: from
    the end of one round until a member has issued the next; `issued_s`: when each member, group by group, has issued
    the first, beside the first of all; empty: all at once."""

    point: Point
    time_s: float
    spread: float = 0.0
    again_s: float = 0.0
    issued_s: tuple[float, ...] = ()


def measure(points: list[Point], ranks: int, backend: str = "gloo", repeat: int = 15, bed=None,
            deadline_s: float = 1800.0, folder: RunFolder | None = None) -> list[Measured]:  # fmt: skip
    """On a testbed (prismllm.testbed.Testbed), or as plain processes of this machine. Logs and results are left in
    `folder`, or nothing is. LaunchError where that fails, does not end in time, or does not go on."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = RunFolder(stack.enter_context(TemporaryFolder("bench-comm")))
            folder.create()
            stack.callback(folder.close)
        path = folder.fragments
        with open(os.path.join(path, "plan.json"), "w") as file:
            json.dump({"backend": backend, "repeat": repeat, "limit_s": min(deadline_s, _LONGEST_S) + 60,
                       "points": [point.to_json() for point in points]}, file)  # fmt: skip
        rate = bed.star.link.bits_per_second if bed else None
        watch = Watch(os.path.join(path, "progress"), ranks, points, repeat, deadline_s, rate)
        options = LaunchOptions("real", ranks, Program("prismllm.comm.probe", True, [path]), folder.path,
                                folder.logs, environment={"OMP_NUM_THREADS": "1"})  # fmt: skip
        launch(bed.place(options) if bed else options, watch.on_event, show_output=False, company=watch)
        columns = [_results(os.path.join(path, f"measured-{rank}.json"), rank, points, repeat)
                   for rank in range(ranks)]  # fmt: skip
    return [
        summary(point, [[columns[rank][number][i] for group in point.groups for rank in group] for i in range(repeat)])
        for number, point in enumerate(points)
    ]


def _results(path: str, rank: int, points: list[Point], repeat: int) -> list:
    """[point][repetition][round]: issued, done. LaunchError where the file holds anything else."""
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise ValueError("too large")
        with open(path) as file:
            told = json.load(file)
        for point, repetitions in zip(points, told, strict=True):
            rounds = point.rounds if any(rank in group for group in point.groups) else 0
            if len(repetitions) != repeat or any(len(one) != rounds for one in repetitions):
                raise ValueError("wrong lengths")
            for issued, done in itertools.chain.from_iterable(repetitions):
                if not (math.isfinite(issued) and math.isfinite(done)):
                    raise ValueError("no time")
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as reason:
        raise LaunchError(f"what rank {rank} has measured is missing or damaged ({reason})", 4) from None
    return told


def summary(point: Point, repetitions: list[list[list[list[float]]]]) -> Measured:
    """Of [repetition][member][round]: issued, done."""
    times, again, issued = [], [], []
    for members in repetitions:
        last_issued, done = max(rounds[0][0] for rounds in members), max(rounds[-1][1] for rounds in members)
        times.append(max(done - last_issued, 1e-9))
        first = min(rounds[0][0] for rounds in members)
        issued.append([rounds[0][0] - first for rounds in members])
        again += [after[0] - before[1] for rounds in members for before, after in itertools.pairwise(rounds)]
    time_s = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (time_s,) * 3
    typical = tuple(map(statistics.median, zip(*issued, strict=True)))
    return Measured(point, time_s, (high - low) / 2 / time_s, statistics.median(again) if again else 0.0,
                    tuple(one - min(typical) for one in typical))  # fmt: skip
