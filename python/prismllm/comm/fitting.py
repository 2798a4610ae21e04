"""The model whose replays take what was measured: weighted least squares over the logarithms of both, by
Levenberg-Marquardt with derivatives from differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from prismllm.comm.measure import Measured
from prismllm.comm.model import CommModel
from prismllm.comm.plan import Place, Point
from prismllm.comm.predict import Predictor

_ROUNDS = 60
_STEP = 0.03  # of a logarithm, for derivatives: wide, as a simulation is not smooth
_LEAST_SPREAD = 0.01
_HARD = 2.0  # in units of the spread: from there on a residual pulls less than its square (Huber)
# No measurement says more than this; e^x of what is beyond may be no number.
_TIME, _RATE = (1e-8, 1.0), (1e3, 1e13)
_BOUNDS = {"message_s": _TIME, "operation_s": _TIME, "copy_bytes_per_second": _RATE, "bytes_per_second": _RATE,
           "burst_bytes": (1.0, 1e10), "delay_s": _TIME, "inside_bytes_per_second": _RATE,
           "inside_delay_s": _TIME, "queue_bytes": (1.0, 1e9)}  # fmt: skip


@dataclass(frozen=True)
class Residual:
    measured: Measured
    predicted_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured.time_s - 1


@dataclass(frozen=True)
class Fit:
    model: CommModel
    processors: int
    place: Place
    residuals: list[Residual]

    @property
    def held_out(self) -> list[Residual]:
        return [one for one in self.residuals if one.measured.point.held_out]


def check_plan(points: Sequence[Point], place: Place) -> list[str]:
    """The parameters that these can tell. ValueError where they are too few."""
    used = [point for point in points if not point.held_out]
    names = CommModel().free(place, {point.op for point in used})
    if len(used) < len(names):
        raise ValueError(f"{len(used)} measurements for {len(names)} parameters; accepted: at least as many")
    return names


def fit(measured: Sequence[Measured], place: Place, processors: int, backend: str = "gloo") -> Fit:
    """ValueError where there is too little to fit."""
    used = [one for one in measured if not one.point.held_out]
    names = check_plan([one.point for one in measured], place)
    for one in measured:
        if not (one.time_s > 0 and math.isfinite(one.time_s)):
            raise ValueError(f"{one.point.op} of {one.point.bytes} bytes took {one.time_s} s; accepted: above 0")
    predictor = Predictor(used, place.ranks, backend)
    times = np.log([one.time_s for one in used])
    spread = np.array([math.hypot(_LEAST_SPREAD, one.spread) for one in used])

    def model_of(x: np.ndarray) -> CommModel:
        return replace(CommModel(), **dict(zip(names, np.exp(x).tolist(), strict=True)))

    def residuals(x: np.ndarray) -> np.ndarray:
        predicted = predictor(model_of(x).to_toml(place, processors, "fit"))
        return (np.log(np.maximum(predicted, 1e-9)) - times) / spread

    found = _least_squares(residuals, _begin(used, names, place), [_BOUNDS[name] for name in names])
    model = model_of(found)
    every = Predictor(list(measured), place.ranks, backend)(model.to_toml(place, processors, "fit"))
    return Fit(model, processors, place, [Residual(*pair) for pair in zip(measured, every, strict=True)])


def _begin(used: list[Measured], names: tuple[str, ...], place: Place) -> np.ndarray:
    """Rates from the largest sizes, times from the smallest."""
    begin = {field.name: field.default for field in fields(CommModel)}
    for inside, prefix in ((True, "inside_"), (False, "")):
        if some := [one for one in used if one.point.is_inside(place) == inside]:
            large = max(some, key=lambda one: one.point.bytes * one.point.rounds / one.time_s)
            begin[f"{prefix}bytes_per_second"] = large.point.bytes * large.point.rounds / large.time_s
            begin[f"{prefix}delay_s"] = min(one.time_s for one in some) / 4
    begin["message_s"] = begin["operation_s"] = min(one.time_s for one in used) / 8
    return np.log([min(max(begin[name], _BOUNDS[name][0]), _BOUNDS[name][1]) for name in names])


def _weights(r: np.ndarray) -> np.ndarray:
    """Huber's, so that a backend's rare hiccup, or an operation that no model of this kind fits, does not rule."""
    return np.sqrt(_HARD / np.maximum(np.abs(r), _HARD))


def _cost(r: np.ndarray) -> float:
    a = np.abs(r)
    return float(np.where(a <= _HARD, a * a, 2 * _HARD * a - _HARD**2).sum())


def _least_squares(residuals, x: np.ndarray, bounds: list[tuple[float, float]]) -> np.ndarray:
    low, high = np.log(bounds).T
    damping, r = 1e-2, residuals(x)
    for _ in range(_ROUNDS):
        columns = []
        for i in range(len(x)):
            step = np.zeros(len(x))
            step[i] = _STEP
            columns.append((residuals(x + step) - residuals(x - step)) / (2 * _STEP))
        weights = _weights(r)
        jacobian = np.stack(columns, axis=1) * weights[:, None]
        gradient, square = jacobian.T @ (r * weights), jacobian.T @ jacobian
        better = None
        while better is None and damping < 1e8:
            step = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -gradient)
            there = np.clip(x + np.clip(step, -1.5, 1.5), low, high)
            new = residuals(there)
            if _cost(new) < _cost(r):
                better = there, new
            else:
                damping *= 4
        if better is None:
            return x
        gain = 1 - _cost(better[1]) / max(_cost(r), 1e-300)
        (x, r), damping = better, max(damping / 8, 1e-9)
        if gain < 1e-7:
            return x
    return x
