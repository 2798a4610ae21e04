"""One calibration: its options and its figures."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field

import numpy as np

from prismllm import _calibrate
from prismllm.replay import Links, NetworkOptions
from prismllm.trace import Trace, load

_USUAL_LINKS = Links()
_LARGEST = {"warmup": 2**31 - 1, "samples": 2**31 - 1, "seed": 2**64 - 1, "threads": 2**31 - 1}


@dataclass(frozen=True)
class Quantiles:
    """Of what varies: 5% are below p05, half are below the median, 95% are below p95."""

    median: float
    p05: float
    p95: float

    @staticmethod
    def of_ns(values: tuple[int, int, int]) -> Quantiles:
        p05, median, p95 = (value / 1e9 for value in values)
        return Quantiles(median, p05, p95)


@dataclass(frozen=True)
class Calibration:
    iteration_time_s: Quantiles  # of all counted iterations of all sampled executions
    # Each rank's own spans and its transfers as if alone, without waiting; the slowest rank.
    uncalibrated_iteration_time_s: float
    iteration_time_of_medians_s: float  # of the execution in which every span takes its median
    busy_s: Quantiles  # computing, of one rank in one iteration: over all ranks and repetitions
    iteration_times_s: np.ndarray  # [samples, counted iterations], the slowest rank's
    warmup_iterations: int
    first_counted: int  # iterations first_counted to first_counted + iteration_times_s.shape[1] - 1 count
    sample: int  # the one whose iterations have the median nearest to the headline: it is the trace
    seed: int
    comm: str  # where transfers come from: a network, "recorded", "closed form"
    notes: list[str]  # what a reader must know to trust the numbers
    timed: Trace = field(repr=False)  # what was calibrated
    _calibration: _calibrate.Calibration = field(repr=False)

    def timeline(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """(start_ns, duration_ns) of the chosen execution, one entry a node."""
        return self._calibration.report.timeline(rank)

    def trace(self) -> Trace:
        """The chosen execution, with its waits."""
        return Trace(_calibrate.calibrated_trace(self.timed.graph, self._calibration))

    def to_json(self) -> dict:
        """The keys of `prism calibrate --json` but for the trace."""
        return {
            "iteration_time_s": asdict(self.iteration_time_s),
            "uncalibrated_iteration_time_s": self.uncalibrated_iteration_time_s,
            "iteration_time_of_medians_s": self.iteration_time_of_medians_s,
            "busy_s": asdict(self.busy_s),
            "samples": len(self.iteration_times_s),
            "seed": self.seed,
            "warmup_iterations": self.warmup_iterations,
            "iterations": list(range(self.first_counted, self.first_counted + self._calibration.counted)),
            "comm": self.comm,
            "notes": self.notes,
        }


def calibrate(
    trace: Trace | str | os.PathLike,
    network: NetworkOptions | None = None,
    *,
    network_name: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    warmup: int | None = None,
    threads: int = 0,
    links: Links = _USUAL_LINKS,
) -> Calibration:
    """Calibrates a timed trace or `.prism` file. `samples`: executions; by default as many as give 400 iterations, at
    least 32. `warmup`: iterations at the beginning that are neither drawn nor counted; by default what the trace says,
    else 1. `links`: for slices without a network. The answer depends on `seed`, not on `threads` (0: all cores).

    ValueError for a trace without times, options out of range, operations that do not match; RuntimeError where the
    trace cannot be executed to its end, with who waits for whom."""
    for name, value in (("warmup", warmup), ("samples", samples), ("seed", seed), ("threads", threads)):
        if value is not None and not 0 <= value <= _LARGEST[name]:
            raise ValueError(f"{name} = {value}; accepted: 0 to {_LARGEST[name]}")
    if not isinstance(trace, Trace):
        trace = load(trace)
    name = (network_name or network.network) if network else ""
    done = _calibrate.calibrate(
        trace.graph, warmup=warmup, samples=samples, seed=seed, threads=threads,
        latency_ns=round(links.latency_s * 1e9), bytes_per_second=links.bytes_per_second,
        network=network.native() if network else None, network_name=name,
    )  # fmt: skip
    return Calibration(
        iteration_time_s=Quantiles.of_ns(done.iteration_time_ns),
        uncalibrated_iteration_time_s=done.uncalibrated_ns / 1e9,
        iteration_time_of_medians_s=done.of_medians_ns / 1e9,
        busy_s=Quantiles.of_ns(done.busy_ns),
        iteration_times_s=done.iteration_times_ns / 1e9,
        warmup_iterations=done.warmup,
        first_counted=done.first_counted,
        sample=done.chosen,
        seed=seed,
        comm=done.comm,
        notes=done.notes,
        timed=trace,
        _calibration=done,
    )
