"""Captures whose ranks share a device that does not hold them all. The device is the fake (csrc/backend/device): its
memory is a folder, its driver a script, and it writes down what was swapped when."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from faults import LIMIT_S, Run

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "shared_device.py"
CAPACITY, RANKS = 100, 4
# Rank 0 allocates first; rank 1 is to run and has no room, so that rank 0 leaves the device; then nothing happens.
TWO = """
import os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
from prismllm import _c10d
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    dist.recv(torch.zeros(1), 0)
_c10d.note_device_use()
Path(sys.argv[1], str(os.getpid())).write_text("0 60")
print(f"rank{rank}={os.getpid()} ready", flush=True)
if rank == 0:
    dist.send(torch.zeros(1), 1)
    dist.barrier()
time.sleep(1000)
"""


@pytest.fixture
def device(tmp_path):
    """Writes a fake device's script and returns (its path, the folder of its memory)."""
    folder = tmp_path / "device"
    folder.mkdir()

    def make(**script):
        path = tmp_path / "fake.json"
        values = {"capacity_bytes": CAPACITY, "folder": str(folder), "log": str(folder / "log"), **script}
        path.write_text(json.dumps(values))
        return path, folder

    return make


def moves(folder) -> list[dict]:
    log = folder / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for_move(folder, call: str, ended: bool = True) -> int:
    """The process of the first such move."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for move in moves(folder):
            if move["call"] == call and ("end_ns" in move) == ended:
                return move["pid"]
        time.sleep(0.01)
    raise AssertionError(f"no {call} in {moves(folder)}")


def train(run_prism, fake, folder, *options, bytes_each=40):
    return run_prism("capture", "-n", RANKS, "--slots", 1, "--fake-device", fake, *options, PROGRAM, folder, bytes_each,
                     CAPACITY)  # fmt: skip


def test_ranks_take_turns_on_a_device_that_holds_two_of_four_and_train_as_if_it_held_all(run_prism, device, tmp_path):
    fake, folder = device()
    swapped = train(run_prism, fake, folder, "-o", "swapped.prism", "--json", "swapped.json")
    assert swapped.returncode == 0, swapped.stderr
    log, moments = moves(folder), {file.name: file.read_text() for file in folder.glob("moments-*")}
    for file in folder.iterdir():
        file.unlink()
    fits = train(run_prism, fake, folder, "-o", "fits.prism", "--json", "fits.json", bytes_each=20)
    assert fits.returncode == 0, fits.stderr

    results = [
        sorted(line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT" in line)
        for done in (swapped, fits)
    ]
    assert len(results[0]) == RANKS and results[0] == results[1]
    assert run_prism("diff", "swapped.prism", "fits.prism").returncode == 0
    summary, fitting = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("swapped", "fits"))
    assert fitting["device_swaps"] == 0 and fitting["device_swap_s"] == 0
    assert moves(folder) == []
    # Two of the ranks are on the device whenever a third comes: not every change of rank costs a swap.
    assert RANKS - 2 < summary["device_swaps"] < summary["switches"]

    ended = [move for move in log if "end_ns" in move]
    assert summary["device_swaps"] == sum(move["call"] == "swap_out" for move in ended)
    for name, text in moments.items():
        computes = [int(word) for word in text.split()]
        own = [move for move in ended if move["pid"] == int(name.removeprefix("moments-"))]
        leaves = [move["begin_ns"] for move in own if move["call"] == "swap_out"]
        returns = [move["end_ns"] for move in own if move["call"] == "swap_in"]
        assert computes and own
        for left, back in zip(leaves, [*returns, float("inf")], strict=False):
            assert not [moment for moment in computes if left < moment < back]


def test_a_swap_that_the_driver_refuses_ends_the_run_with_rank_and_reason(run_prism, device):
    fake, folder = device(events=[{"call": "swap_in", "error": "CUDA_ERROR_NOT_SUPPORTED"}])
    done = train(run_prism, fake, folder)
    assert done.returncode == 4
    first = next(line for line in done.stderr.splitlines() if "device swap" in line)
    assert "could not be swapped into device 0: CUDA_ERROR_NOT_SUPPORTED" in first and "rank " in first


def start_two(tmp_path, fake, folder) -> Run:
    (tmp_path / "two.py").write_text(TWO)
    return Run("capture", "-n", 2, "--slots", 1, "--fake-device", fake, "two.py", folder, cwd=tmp_path)


def test_a_rank_that_is_killed_while_its_state_is_on_the_host_is_what_the_run_reports(device, tmp_path):
    fake, folder = device()
    run = start_two(tmp_path, fake, folder)
    away = wait_for_move(folder, "swap_out")
    run.wait_for(" ready", 2)
    everyone = run.everyone()
    os.kill(away, signal.SIGKILL)
    assert run.end() == 3
    rank = next(rank for rank in (0, 1) if run.named(f"rank{rank}") == away)
    assert f"rank {rank} was killed by SIGKILL" in run.error_text()
    run.assert_gone(everyone)


def test_ctrl_c_in_the_middle_of_a_swap_ends_everything(device, tmp_path):
    fake, folder = device(events=[{"call": "swap_out"}])  # hangs
    run = start_two(tmp_path, fake, folder)
    wait_for_move(folder, "swap_out", ended=False)
    everyone = run.everyone()
    os.kill(run.pid, signal.SIGINT)
    assert run.end() == 130
    run.assert_gone(everyone)


def test_where_the_driver_cannot_swap_the_run_says_so_and_local_rank_indexes_the_devices(run_prism, device, tmp_path):
    (tmp_path / "local.py").write_text(
        "import os\nprint('RANKS', *(os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE')))\n"
    )
    fake, _ = device(devices=2, not_viable="the driver is too old")
    done = run_prism("capture", "-n", 4, "--fake-device", fake, "local.py")
    assert done.returncode == 0, done.stderr
    assert sorted(line.partition("RANKS ")[2] for line in done.stdout.splitlines() if "RANKS" in line) == [
        "0 0 2", "1 1 2", "2 0 2", "3 1 2"
    ]  # fmt: skip
    assert "4 on 2 slots" in done.stdout
    assert "device swap is not viable: the driver is too old" in done.stdout
    insisted = run_prism("capture", "-n", 4, "--fake-device", fake, "--device-swap", "always", "local.py")
    assert insisted.returncode == 2
    assert "--device-swap always: device swap is not viable: the driver is too old" in insisted.stderr


def test_wrong_use_of_devices_is_one_sentence(run_prism, device, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text("")
    fake, _ = device(devices=2)
    more = run_prism("capture", "-n", 8, "--fake-device", fake, "--nproc-per-node", 4, "program.py")
    assert more.returncode == 2 and "--nproc-per-node 4" in more.stderr and "accepted: 1 to 2" in more.stderr
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    none = run_prism("capture", "-n", 2, "--device-swap", "always", "program.py")
    assert none.returncode == 2 and "no accelerator is visible" in none.stderr


@pytest.mark.parametrize(
    ("variable", "count"), [(None, 3), ("", 0), ("-1", 0), ("2,0", 2), ("0,7,1", 1), ("GPU-1f,MIG-2e", 2)]
)
def test_visible_devices_are_counted_as_cuda_reads_the_variable(monkeypatch, variable, count):
    from prismllm.launch import devices

    nodes = ["null", "nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"]
    monkeypatch.setattr(devices.os, "listdir", lambda folder: nodes)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert devices.visible_devices() == count


@pytest.mark.parametrize(
    ("ranks", "devices", "slots", "per_node"), [(8, 8, 8, 8), (8, 8, 2, 2), (6, 4, 4, 3), (5, 4, 4, 1)]
)
def test_nodes_have_one_size_and_each_local_rank_a_device(ranks, devices, slots, per_node):
    from prismllm.launch.devices import ranks_per_node

    assert ranks_per_node(ranks, devices, slots) == per_node
