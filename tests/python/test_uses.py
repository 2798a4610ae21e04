"""What people use an emulation for (docs/uses.md): tuning, planning, profiling, debugging."""

import ast
import inspect
import json
import subprocess
import sys
import time

import pytest
import worlds
from test_programs import result_of


@pytest.fixture
def tuning(repository, monkeypatch):
    monkeypatch.syspath_prepend(repository / "examples")
    import tuning

    return tuning


# One pass of a stage: 8 ms of attention forward, 16 backward. Two micro-batches through four stages are five passes on
# the critical path.
SMALL = ["--attention-ms", 8, "--mlp-ms", 0, "--batch", 4, "--steps", 4]
PASSES, FORWARD_S = 5, 0.008
EXACT = """
[[edit]]
set_s = 0
[[edit]]
name = "attention"
set_s = 0.008
[[edit]]
name = "attention.backward"
set_s = 0.016
[links]
latency_s = 0
bytes_per_second = {}
"""


def checked(run_prism):
    def run(*words):
        done = run_prism(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def median_s(run, tmp_path, *words):
    """Of the iterations of a replay."""
    run("replay", *words, "--json", tmp_path / "replay.json")
    found = json.loads((tmp_path / "replay.json").read_text())["iterations"]
    return sorted(one["time_s"] for one in found)[len(found) // 2]


def test_configurations_differ_in_time_and_memory_and_not_in_losses(tuning, captured, run_prism, tmp_path):
    # 32 KiB to the next stage take no time, or 5 ms.
    hop, passes = 0.005, 4 + 3  # micro-batches and stages before the last
    networks = {"instant": 1e15, "slow": 2 * 64 * 64 * 4 / hop}
    for network, speed in networks.items():
        (tmp_path / f"{network}.toml").write_text(EXACT.format(speed))
    time_s, peak, losses = {}, {}, {}
    for name in ("baseline", "offload", "recompute", "p2p overlap"):
        words = [*tuning.CONFIGURATIONS[name], "--attention-ms", 0, "--mlp-ms", 0, "--batch", 8, "--steps", 3]
        trace, summary, printed = captured(tuning.PROGRAM, arguments=words)
        peak[name] = max(one["peak_memory_bytes"] for one in summary["memory"]["ranks"])
        losses[name] = result_of(printed)["losses"]
        for network in networks if name != "offload" else ():
            scenario = tmp_path / f"{network}.toml"
            time_s[name, network] = median_s(checked(run_prism), tmp_path, "--scenario", scenario, trace.path)
    assert len({str(values) for values in losses.values()}) == 1, losses
    # Of width 64 a layer has 12 * 64^2 weights and 4 * 64 of its two norms, two states of four bytes for each.
    states = (12 * 64**2 + 4 * 64) * 2 * 4
    assert peak["baseline"] - peak["offload"] >= states
    # Of one micro-batch of 2 x 64 at least queries, keys, values and four widths of the MLP are not kept.
    assert peak["baseline"] - peak["recompute"] >= 2 * 64 * (3 + 4) * 64 * 4
    pure = {name: time_s[name, "instant"] for name, _ in time_s}
    forward, backward = FORWARD_S, 2 * FORWARD_S
    assert pure["baseline"] == pytest.approx(passes * (forward + backward), rel=0.2)
    assert pure["recompute"] == pytest.approx(passes * (2 * forward + backward), rel=0.2)
    exposed = {name: time_s[name, "slow"] - pure[name] for name in pure}
    assert exposed["baseline"] > exposed["p2p overlap"] + 2 * hop


def test_a_plan_says_what_the_program_with_the_faster_kernel_takes(tuning, run_prism, tmp_path):
    run = checked(run_prism)
    measured = tuning.measure(tmp_path, SMALL, run)
    pure = PASSES * 3 * FORWARD_S
    for key in ("calibrated_s", "emulated_s"):
        assert pure <= measured[key] < 5 * pure  # beside sleeping a busy machine computes the small model

    (tmp_path / "half.toml").write_text('[[edit]]\nname = "attention*"\nscale = 0.5\n')

    calibrated, scenario = tmp_path / "calibrated.prism", tmp_path / "half.toml"
    saved = median_s(run, tmp_path, calibrated) - median_s(run, tmp_path, "--scenario", scenario, calibrated)
    assert 0.25 * pure < saved < 0.65 * pure

    faster = [*SMALL[:1], SMALL[1] / 2, *SMALL[2:]]
    run(
        "time", tmp_path / "captured.prism", "-o", tmp_path / "faster.prism", tuning.PROGRAM, *faster
    )  # not captured again
    run(
        "calibrate",
        tmp_path / "faster.prism",
        "--comm",
        tuning.NETWORK,
        "-o",
        tmp_path / "f.prism",
        "--json",
        tmp_path / "f.json",
    )
    took = json.loads((tmp_path / "f.json").read_text())["iteration_time_s"]["median"]
    assert pure / 2 <= took < 5 * pure


def profiled_traffic(world_size):
    """(name, sizes) of each communication, as torch.profiler sees them."""
    import torch
    import torch.distributed as dist
    from torch.profiler import profile

    rank = dist.get_rank()
    with profile(record_shapes=True) as profiler:
        x = torch.ones(1000)
        dist.all_reduce(x)
        dist.all_gather_into_tensor(torch.empty(world_size * 4, 250), torch.zeros(4, 250))
        dist.broadcast(torch.ones(8, 4), 1)
        dist.all_to_all_single(torch.empty(16, 3), torch.ones(16, 3))
        got = torch.empty(5, 7)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, torch.ones(5, 7), (rank + 1) % world_size),
            dist.P2POp(dist.irecv, got, (rank - 1) % world_size),
        ])  # fmt: skip
        for work in works:
            work.wait()
        dist.barrier()
    return sorted([event.name, event.input_shapes] for event in profiler.events() if event.name.startswith("gloo:"))


def on_gloo(rank, world_size):
    worlds.file_init()
    return profiled_traffic(world_size)


def test_a_profile_of_a_real_rank_is_that_of_gloo(run_prism, tmp_path):
    of_gloo = worlds.run_ranks(4, on_gloo)
    body = inspect.getsource(profiled_traffic)
    (tmp_path / "traffic.py").write_text(
        f"import torch.distributed as dist\n{body}\ndist.init_process_group('gloo')\n"
        "print('SEEN', [dist.get_rank(), profiled_traffic(4)])\n"
    )
    run = checked(run_prism)
    run("capture", "-n", 4, "--slots", 2, "-o", "traffic.prism", "traffic.py")
    done = run("emulate", "traffic.prism", "--ranks", "0,1", "-o", "emu.prism")
    seen = dict(ast.literal_eval(line.split("SEEN ")[1]) for line in done.stdout.splitlines() if "SEEN" in line)
    assert seen == {rank: of_gloo[rank] for rank in (0, 1)}
    assert ["gloo:all_reduce", [[1000]]] in seen[0] and ["gloo:recv", [[5, 7]]] in seen[0]


def test_any_program_runs_under_the_profiler(repository, run_prism, tmp_path):
    run = checked(run_prism)
    words = [repository / "examples/gpt3d.py", "--steps", 1, "--tp", 2, "--pp", 2]
    run("capture", "-n", 4, "--slots", 2, "-o", "gpt.prism", *words)
    done = run("emulate", "gpt.prism", "--ranks", 3, "-o", "emu.prism", repository / "examples/profiled.py", *words)
    # Micro-batches of 2 x 64 x 64 numbers, 16 of them: each comes in from the stage before, its gradient goes back.
    rows = [line.split() for line in done.stdout.splitlines() if " x gloo:" in line]
    assert {row[2]: int(row[0]) for row in rows if "".join(row[5:]) == "[[2,64,64]]"} == {
        "gloo:recv": 16, "gloo:send": 16, "gloo:all_reduce": 16 * 4 * 4}  # fmt: skip


STOPS = """
import datetime, sys
import torch, torch.distributed as dist
import prismllm
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
rank = dist.get_rank()
for step in range(4):
    prismllm.iteration()
    prismllm.spin(0.01)
    if "stop" in sys.argv and (step == 3 or (step, rank) == (1, 1)):
        breakpoint()
    x = torch.full((10,), float(rank + step))
    dist.all_reduce(x)
print("RESULT", rank, x[0].item())
"""


@pytest.fixture
def debugged(captured, tmp_path):
    """Emulates ranks 0 and 1 of 4; what is `typed` comes `after_s` seconds after the first prompt. Returns (exit code,
    standard output, standard error, summary)."""
    trace, *_ = captured(STOPS, "--data", tmp_path / "all.data")

    def run(typed, after_s):
        command = [sys.executable, "-m", "prismllm", "emulate", trace.path, "--debug", "--ranks", "0,1", "--data",
                   "all.data", "-o", "emu.prism", "--json", "emu.json", "program.py", "stop"]  # fmt: skip
        with subprocess.Popen(command, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as prism:  # fmt: skip
            shown = ""
            while "(rank " not in shown:
                one = prism.stderr.read(1)
                assert one, shown
                shown += one
            time.sleep(after_s)
            out, errors = prism.communicate(typed, timeout=60)
        return prism.returncode, out, shown + errors, json.loads((tmp_path / "emu.json").read_text())

    return run


def test_a_rank_in_a_debugger_does_not_time_the_job_out(debugged):
    """The other real rank waits for three times the timeout of its group. Later both stop, and take turns."""
    typed = "p 6 * 7, rank, step\nn\nc\n" + 2 * "p 'at', rank, step\nc\n"
    code, out, errors, summary = debugged(typed, after_s=3)
    assert code == 0, errors
    assert "(42, 1, 1)" in errors and "-> dist.all_reduce(x)" in errors
    assert "('at', 0, 3)" in errors and "('at', 1, 3)" in errors
    assert sorted(line.split("RESULT ")[1] for line in out.splitlines() if "RESULT" in line) == ["0 18.0", "1 18.0"]
    assert summary["late_issue_s"] == 0
    assert summary["iterations"][1]["time_s"] > 3  # what is spent at a prompt counts as computing


def test_who_leaves_the_debugger_ends_the_run(captured, run_prism, tmp_path):
    """Here by having nothing to read."""
    trace, *_ = captured(STOPS)
    done = run_prism("emulate", trace.path, "--debug", "--ranks", 1, "-o", "emu.prism", "program.py", "stop")
    assert done.returncode == 3 and "BdbQuit" in done.stderr and "prism: rank 1 failed" in done.stderr
    assert "aptured once more" not in done.stderr
