"""The parts of tests/gpu/run.sh that look at results; each prints JSON lines as the benchmarks do (bench/run.py)."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


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


if __name__ == "__main__":
    part, device, folder = sys.argv[1:]
    {"record": record, "spans": spans}[part](device, Path(folder))
