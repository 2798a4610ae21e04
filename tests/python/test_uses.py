"""What people use an emulation for (docs/uses.md): tuning, planning, profiling."""

import ast
import inspect
import json

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
set_s = 0.8
[[edit]]
name = "attention.backward"
set_s = 1.6
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


@pytest.fixture
def chosen(tuning, captured):
    """Captures the example with one of its choices, its spins empty: (trace, summary, what it printed)."""

    def run(name):
        small = ["--attention-ms", 0, "--mlp-ms", 0, "--batch", 16, "--steps", 3]
        return captured(tuning.PROGRAM, arguments=[*tuning.CONFIGURATIONS[name], *small])

    return run


def test_configurations_differ_in_memory_and_not_in_losses(chosen):
    peak, losses = {}, set()
    for name in ("baseline", "offload", "recompute", "p2p overlap"):
        _, summary, printed = chosen(name)
        peak[name] = max(one["peak_memory_bytes"] for one in summary["memory"]["ranks"])
        losses.add(str(result_of(printed)["losses"]))
    assert len(losses) == 1, losses
    # Of width 64 a layer has 12 * 64^2 weights and 4 * 64 of its two norms, two states of four bytes for each.
    states = (12 * 64**2 + 4 * 64) * 2 * 4
    assert peak["baseline"] - peak["offload"] >= states
    # Of one micro-batch of 2 x 64 at least queries, keys, values and four widths of the MLP are not kept.
    assert peak["baseline"] - peak["recompute"] >= 2 * 64 * (3 + 4) * 64 * 4


def test_configurations_take_what_their_passes_and_messages_take(chosen, run_prism, tmp_path):
    # 32 KiB to the next stage take no time, or half a second: all that was measured is little beside it.
    hop, passes = 0.5, 8 + 3  # micro-batches and stages before the last
    time_s = {"instant": {}, "slow": {}}
    for network, speed in (("instant", 1e15), ("slow", 2 * 64 * 64 * 4 / hop)):
        scenario = tmp_path / f"{network}.toml"
        scenario.write_text(EXACT.format(speed))
        for name in ("baseline", "recompute", "p2p overlap"):
            trace = chosen(name)[0].path
            time_s[network][name] = median_s(checked(run_prism), tmp_path, "--scenario", scenario, trace)
    pure, forward, backward = time_s["instant"], 0.8, 1.6
    assert pure["baseline"] == pytest.approx(passes * (forward + backward), rel=0.02)
    assert pure["recompute"] == pytest.approx(passes * (2 * forward + backward), rel=0.02)
    exposed = {name: time_s["slow"][name] - pure[name] for name in pure}
    assert (
        6 * hop < exposed["p2p overlap"] < exposed["baseline"] - 2 * hop
    )  # to the last stage and back nothing hides them


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
