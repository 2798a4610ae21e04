"""The two sides of a validation. They share nothing but the plan: the predicted side is told no path of a real run."""

from __future__ import annotations

import json
from dataclasses import replace

from prismllm.launch import LaunchError
from prismllm.trace import load
from prismllm.validate.execution import Execution, Prediction
from prismllm.validate.plan import Plan
from prismllm.validate.printed import losses, printed_iterations
from prismllm.validate.steps import StepFailed, Steps


def real_runs(plan: Plan, steps: Steps) -> list[Execution]:
    """The job on the real backend, recorded. Everything that counts is read before this returns."""
    runs = []
    for number in range(1, plan.repeat + 1):
        step, trace, logs = f"real run {number}", f"real/{number}.prism", f"real/{number}.logs"
        words = ["record", "-n", plan.ranks, *plan.place, *_into(steps, trace, logs), *plan.program.words]
        steps.run(step, words, [trace, logs], keeps=True)
        run = _read(step, plan, steps.path(trace), steps.path(logs))
        runs.append(replace(run, printed_s=printed_iterations(steps.path(logs), plan.ranks)))
    return runs


def predicted(plan: Plan, steps: Steps) -> dict[str, Prediction]:
    """The same without them: "calibrated", and "emulated" where chosen ranks are to run for real."""
    comm = [] if plan.ranks == 1 else ["--comm", plan.comm or _measured(plan, steps)]
    slots, program = ["--slots", plan.slots], plan.program.words
    kept = ["--data", steps.path("data"), "--for-ranks", plan.chosen] if plan.sandbox else []
    words = ["capture", "-n", plan.ranks, *slots, *plan.per_node, *kept]
    steps.run("capture", [*words, *_into(steps, "captured.prism", "captured.logs"), *program],
              ["captured.prism", "captured.logs", *(["data"] if kept else [])], keeps=True)  # fmt: skip
    words = ["time", *slots, *_into(steps, "timed.prism", "timed.logs"), steps.path("captured.prism"), *program]
    steps.run("time", words, ["timed.prism", "timed.logs"], ["capture"], keeps=True)
    words = ["calibrate", *comm, "--json", steps.path("calibrated.json"), "-o", steps.path("calibrated.prism")]
    steps.run("calibrate", [*words, steps.path("timed.prism")], ["calibrated.prism", "calibrated.json"],
              ["time", "bench-comm"], plan.models)  # fmt: skip
    figures = _json(steps.path("calibrated.json"))
    execution = _read("calibrate", plan, steps.path("calibrated.prism"), steps.path("captured.logs"))
    made = {"calibrated": Prediction(execution, figures["iteration_time_s"]["median"], figures)}
    if kept:
        made["emulated"] = _emulated(plan, steps, comm)
    return made


def _measured(plan: Plan, steps: Steps) -> str:
    path = steps.path("model.toml")
    steps.run("bench-comm", ["bench-comm", "-n", plan.ranks, *plan.place, "-o", path], ["model.toml"])
    return path


def _emulated(plan: Plan, steps: Steps, comm: list[str]) -> Prediction:
    words = ["emulate", "--ranks", plan.chosen, *comm, "--data", steps.path("data"), "--json",
             steps.path("emulated.json"), *_into(steps, "emulated.prism", "emulated.logs")]  # fmt: skip
    steps.run("emulate", [*words, steps.path("calibrated.prism"), *plan.program.words],
              ["emulated.prism", "emulated.json", "emulated.logs"], ["capture", "calibrate", "bench-comm"], plan.models,
              keeps=True)  # fmt: skip
    execution = _read("emulate", plan, steps.path("emulated.prism"), steps.path("emulated.logs"))
    return Prediction(execution, figures=_json(steps.path("emulated.json")))


def _into(steps: Steps, trace: str, logs: str) -> list[str]:
    return ["-o", steps.path(trace), "--log-dir", steps.path(logs)]


def _read(step: str, plan: Plan, trace: str, logs: str) -> Execution:
    try:
        return Execution.of(load(trace), losses(logs, plan.loss_pattern))
    except ValueError as reason:
        raise StepFailed(step, str(reason), 3) from None
    except LaunchError as reason:
        raise StepFailed(step, str(reason), reason.exit_code) from None


def _json(path: str) -> dict:
    with open(path) as file:
        return json.load(file)
