"""The programs of tests/programs, each a communication pattern, under `prism capture`: the same losses as on the real
Gloo backend (baseline.json), whatever the number of slots, and the same trace every time."""

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prismllm.trace import diff, load

RELATIVE = 1e-5  # the real backend sums in another order
# Fewer runs of what takes long by itself: compilers, and children that import torch.
ONE_RUN = {"compiled", "checkpoint_process"}
TWO_RUNS = {"ddp_variants", "fsdp1", "mesh_2d", "pipeline_schedules", "loaders"}


# By what `prism time` gets through them, where made-up values do not serve.
VALUES = {
    "pipeline_gpipe": "whole numbers",
    "pipeline_schedules": "whole numbers",
    "moe": "whole numbers",
    "zero_optimizer": "whole numbers",
    "objects": "whole numbers",
    "ddp_powersgd": "recorded",
    "ddp_variants": "recorded",
    "subgroups": "recorded",
    "messages": "recorded",
    "collectives": "recorded",
    "futures": "recorded",
    "checkpoint": "peers",
    "checkpoint_process": "peers",
}

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
BASELINE = json.loads((PROGRAMS / "baseline.json").read_text())
TIMED = {job["program"]: name for name, job in reversed(BASELINE.items()) if "/" not in job["program"]}  # each once
TRACES = {}  # made by the tests below, by name


def result_of(output):
    """The values of the one RESULT line, however the launcher prefixes it."""
    (line,) = [line for line in output.splitlines() if "RESULT {" in line]
    return json.loads(line[line.index("RESULT {") + len("RESULT ") :])


def assert_close(got, expected, where="result"):
    """Numbers to rounding, all else exactly."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), where
        for key in expected:
            assert_close(got[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(got) == len(expected), where
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_close(a, b, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=RELATIVE, abs=1e-9), where
    else:
        assert got == expected, where


@pytest.fixture
def capture(run_prism, tmp_path):
    """Runs one program under capture; returns its result and its trace's path."""

    def run(program, world, options, slots, name="job"):
        trace = tmp_path / f"{name}.prism"
        path = (PROGRAMS / program).resolve()
        first = not list(tmp_path.glob("*.prism"))  # hashes as in no other process
        done = run_prism("capture", "-n", world, "--slots", slots, "-o", trace, path, *options, timeout=180,
                         cold=first)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return result_of(done.stdout), trace

    return run


@pytest.mark.parametrize("name", BASELINE)
def test_losses_are_those_of_gloo_with_any_number_of_slots_and_traces_are_equal(name, capture):
    job = BASELINE[name]
    slots = [1] if name in ONE_RUN else [1, job["world"]] if name in TWO_RUNS else [1, 2, job["world"]]
    runs = [capture(job["program"], job["world"], job["options"], count, f"{name}-{count}") for count in slots]
    first, first_trace = runs[0]
    TRACES[name] = first_trace
    assert_close(first, job["result"])
    for result, trace in runs[1:]:
        assert result == first  # to the last bit
        equal, difference = diff(load(first_trace), load(trace))
        assert equal, difference


@pytest.fixture(scope="module")
def times(tmp_path_factory):
    """For each program what becomes of `prism time` without a word about its peers: two at a time."""
    folder = tmp_path_factory.mktemp("times")
    prism = [sys.executable, "-m", "prismllm"]

    def run(name):
        job, trace = BASELINE[name], TRACES.get(name, folder / f"{name}.prism")
        given = {"cwd": folder, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600}
        if not trace.exists():
            program = (PROGRAMS / job["program"]).resolve()
            capture = [*prism, "capture", "-n", str(job["world"]), "--slots", "2", "-o", trace, program]
            subprocess.run([*capture, *job["options"]], check=True, **given)
        return trace, subprocess.run(
            [*prism, "time", trace, "--slots", "2", "-o", f"{name}.timed.prism", "--json", f"{name}.json"], **given
        )

    with ThreadPoolExecutor(2) as two:
        futures = {name: two.submit(run, name) for name in TIMED.values()}
        yield lambda name: (*futures[name].result(), folder)


@pytest.mark.parametrize("name", TIMED.values())
def test_every_program_is_timed_without_a_word_about_its_peers(name, times):
    trace, done, folder = times(name)
    assert done.returncode == 0, done.stderr
    equal, difference = diff(load(trace), load(folder / f"{name}.timed.prism"))
    assert equal, difference
    assert json.loads((folder / f"{name}.json").read_text())["values"] == VALUES.get(name, "made up")


def test_two_runs_are_equal_to_the_last_bit(capture):
    job = BASELINE["moe"]
    (first, a), (second, b) = (capture(job["program"], job["world"], job["options"], 2, name) for name in "ab")
    assert first == second
    equal, difference = diff(load(a), load(b))
    assert equal, difference


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", "none"])
def test_the_backend_that_a_program_names_does_not_matter(backend, capture):
    job = BASELINE["ddp_buckets"]
    result, _ = capture(job["program"], job["world"], ["--backend", backend], 2)
    assert_close(result, job["result"])


def test_powersgd_with_many_buckets_does_not_hang(capture):
    """Stock Gloo does. Its first two steps average exactly, so their losses are those of one bucket."""
    job = BASELINE["ddp_powersgd"]
    runs = [capture(job["program"], job["world"], ["--bucket-mb", "0.01"], slots)[0] for slots in (1, job["world"])]
    assert runs[0] == runs[1]
    assert_close(runs[0]["losses"][:3], job["result"]["losses"][:3])
    assert all(math.isfinite(loss) for loss in runs[0]["losses"])


def test_every_layout_of_the_3d_example_trains_the_same_model(capture):
    options = ["--steps", "2", "--batch", "8", "--layers", "4"]
    losses = [
        capture("../../examples/gpt3d.py", world, [*options, "--tp", tp, "--pp", pp], 2)[0]["losses"]
        for world, tp, pp in [(1, 1, 1), (2, 2, 1), (2, 1, 2), (2, 1, 1), (16, 2, 4)]
    ]
    for other in losses[1:]:
        assert_close(other, losses[0])
