"""The parts of tests/gpu/run.sh that look at results; each prints JSON lines as the benchmarks do (bench/run.py)."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOM = 0.16  # of the device, for ranks that hold 0.04 of it each; a sixteenth is kept free


def figure(name: str, value: float, unit: str, **more) -> None:
    print(json.dumps({"name": name, "value": value, "unit": unit, **more}), flush=True)


def record(device: str, folder: Path) -> None:
    """Records the job at world size 1 and keeps its RESULT and its trace."""
    size = ["--size", "256"] if device == "cpu" else []
    job = [HERE / "recorded_job.py", "--device", device, *size]
    trace = folder / "job.prism"
    command = [sys.executable, "-m", "prismllm", "record", "-n", "1", "-o", trace, *job]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100)
    result = next((line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line), None)
    if done.returncode or result is None:
        sys.exit(f"record exited with {done.returncode}\n{done.stdout}{done.stderr}")
    (folder / "result.json").write_text(result)
    info = [sys.executable, "-m", "prismllm", "info", "--json", "-", str(trace)]
    summary = json.loads(subprocess.run(info, capture_output=True, text=True, timeout=60, check=True).stdout)
    recorded = summary["collectives"]["all_reduce"]["count"]
    issued = len(json.loads(result)["spans_s"]) + 2
    if recorded != issued:
        sys.exit(f"the trace has {recorded} all_reduce, the program issued {issued}")
    figure("all_reduce recorded, of those issued", recorded / issued, "", limit=1.0, better="higher")


def spans_before(trace: Path, op: str) -> list[float]:
    """Seconds of the compute span in front of each `op` of rank 0."""
    from prismllm import _graph

    graph = _graph.open(str(trace), check=True)
    structure = graph.structure(graph.rank_class[0])
    _, duration = graph.timing(0)
    compute, issue = _graph.NODE_KINDS.index("compute"), _graph.NODE_KINDS.index("issue")
    found, kinds = [], structure["node_kind"]
    for node in range(1, len(kinds)):
        comm = structure["node_comm"][node]
        if kinds[node] == issue and _graph.OPS[structure["comm_op"][comm]] == op:
            found.append(duration[node - 1] / 1e9 if kinds[node - 1] == compute else 0.0)
    return found


def spans(device: str, folder: Path) -> None:
    """Recorded spans against the device's own time of the same work."""
    result = json.loads((folder / "result.json").read_text())
    measured = result["spans_s"]
    recorded = spans_before(folder / "job.prism", "all_reduce")[-len(measured) :]
    inside = statistics.median(measured)
    figure("matrix products alone", result["flop"] / result["alone_s"] / 1e12, "TFLOP/s")
    figure("the same within a recorded job", result["flop"] / inside / 1e12, "TFLOP/s")
    slower = abs(inside / result["alone_s"] - 1)
    figure("difference between the two", 100 * slower, "%", limit=2.0)
    error = statistics.median(abs(a - b) / b for a, b in zip(recorded, measured, strict=True))
    figure(
        f"recorded span against {'CUDA events' if device == 'cuda' else 'clock'}, median", 100 * error, "%", limit=2.0
    )


def capture_shared(device: str, folder: Path, name: str, part: float, ranks: int, filled: float = 0.0):
    """(the program's RESULT, the capture's summary) of ranks that share one device, `filled` of which is not theirs."""
    options: list[str] = []
    arguments = ["--device", device, "--part", str(part)]
    if device == "cpu":
        memory = folder / f"{name}-device"
        memory.mkdir(exist_ok=True)
        script = folder / f"{name}-device.json"
        script.write_text(json.dumps({"capacity_bytes": 1 << 20, "folder": str(memory)}))
        (memory / str(os.getpid())).write_text(f"0 {int(filled * (1 << 20))}")
        options += ["--fake-device", str(script)]
        arguments += ["--fake", str(script)]
    command = [sys.executable, "-m", "prismllm", "capture", "-n", str(ranks), "--slots", "1", *options,
               "-o", str(folder / f"{name}.prism"), "--json", str(folder / f"{name}.json"),
               str(HERE / "shared_gpu.py"), *arguments]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    result = next((line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line), None)
    if done.returncode or result is None:
        sys.exit(f"capture exited with {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads(result)
    difference = abs(result["parameters"] / result["expected"] - 1)
    figure(f"{ranks} ranks against one process, parameters", difference, "", limit=1e-4)
    return result, json.loads((folder / f"{name}.json").read_text())


def capture(device: str, folder: Path) -> None:
    """Four ranks that ask for nccl on one device, which holds them all."""
    _, summary = capture_shared(device, folder, "capture", 0.05, 4)
    figure("swaps where everything fits", summary["device_swaps"], "", limit=0)
    figure("four ranks on one device", summary["wall_s"], "s")


def memory(device: str, folder: Path) -> None:
    """A rank that takes what its limit leaves it, on the device or the CPU."""
    limit, block = 1 << 30, 64 << 20
    command = [sys.executable, "-m", "prismllm", "record", "-n", "1", "--memory-limit", str(limit),
               "-o", str(folder / "memory.prism"), "--json", str(folder / "memory.json"),
               str(HERE / "limited.py"), "--device", device, "--block", str(block)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=35)
    result = next((line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line), None)
    if done.returncode or result is None:
        sys.exit(f"record exited with {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads(result)
    (told,) = json.loads((folder / "memory.json").read_text())["memory"]["ranks"]
    figure("blocks below a limit of 16", result["blocks"], "", limit=16)
    figure("the same after freeing half", result["again"], "", limit=8)
    figure("reserved, of the limit", told["peak_reserved_bytes"] / limit, "", limit=1.0)
    figure("left below the limit", (limit - told["peak_reserved_bytes"]) / block, "blocks", limit=0.999)
    off = abs(told["peak_memory_bytes"] - result["allocated"]) + abs(told["peak_reserved_bytes"] - result["reserved"])
    figure("summary against the allocator", off, "bytes", limit=0)


def swap(device: str, folder: Path) -> None:
    """Three ranks of which the device has room for one or two. Most of it is taken by this process, so that what moves
    is small against the host's memory and the time there is."""
    import torch

    from prismllm import _c10d

    if device == "cuda":
        _c10d.device_swap("", 1)  # raises with the reason where the driver cannot
        free, total = torch.cuda.mem_get_info()
        filler = torch.empty(max(0, free - int(ROOM * total)), dtype=torch.uint8, device="cuda")
        figure("taken by others", filler.nbytes / total, "")
    result, summary = capture_shared(device, folder, "swap", 0.04, 3, filled=1 - ROOM)
    if summary["device_swaps"] < 1:
        sys.exit(f"nothing was swapped: {summary}")
    figure("swaps out", summary["device_swaps"], "")
    figure("a swap out and back", summary["device_swap_s"] / summary["device_swaps"], "s")
    if device == "cuda":
        moved = 2 * result["held_bytes"] * summary["device_swaps"]
        figure("both ways together", moved / summary["device_swap_s"] / 1e9, "GB/s")


if __name__ == "__main__":
    part, device, folder = sys.argv[1:]
    parts = {"record": record, "spans": spans, "capture": capture, "memory": memory, "swap": swap}
    parts[part](device, Path(folder))
