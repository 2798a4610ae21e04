"""Our networks beside SimGrid's (`make peers` builds it): the same messages over 200 random networks, and the training
iteration of 1,024 ranks, one after the other in one run."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from prismllm import _simulate

ROOT = Path(__file__).resolve().parents[1]
PEERS, OURS = ROOT / "build" / "peers", ROOT / "build" / "bench" / "bench" / "cpp" / "bench_iteration"
_DEADLINE_S = 600


def figure(name: str, value: float, unit: str, limit: float | None, **more) -> None:
    print(json.dumps({"name": name, "value": value, "unit": unit, "limit": limit, **more}), flush=True)


def random_network(draw: random.Random) -> tuple[_simulate.Topology, np.ndarray, np.ndarray]:
    """(its topology, bytes per second and picoseconds of each link)."""
    endpoints, switches = draw.randint(2, 24), draw.randint(1, 6)
    pairs = [(endpoint, endpoints + draw.randrange(switches)) for endpoint in range(endpoints)]
    pairs += [(endpoints + one, endpoints + one + 1) for one in range(switches - 1)]
    for _ in range(draw.randint(0, 4) if switches > 1 else 0):
        pairs.append(tuple(endpoints + one for one in draw.sample(range(switches), 2)))
    ends = np.array([pair for a, b in pairs for pair in ((a, b), (b, a))], dtype=np.int32)
    rate = np.array([draw.choice((1e9, 12.5e9, draw.uniform(1e8, 5e10))) for _ in ends])
    latency = np.array([draw.choice((0, 1_000_000, draw.randrange(5_000_000))) for _ in ends])
    none = np.zeros(0, dtype=np.int32)
    topology = _simulate.Topology(
        vertices=endpoints + switches, link_from=ends[:, 0], link_to=ends[:, 1], bytes_per_second=rate,
        latency_ps=latency, line_bytes_per_second=rate, burst_bytes=np.zeros(len(ends), dtype=np.int64),
        endpoint=np.arange(endpoints, dtype=np.int32), nic=none, vertex_host=none, host=none,
        host_message_ps=np.zeros(0, dtype=np.int64), spread="hash")  # fmt: skip
    return topology, rate, latency


def agreement(sets: int) -> None:
    draw = random.Random(1)
    told, ours, took = [], [], 0.0
    for _ in range(sets):
        topology, rate, latency = random_network(draw)
        count = draw.randint(1, 120)
        at = np.array([draw.choice((0, draw.randrange(10**10))) for _ in range(count)], dtype=np.int64)
        ends = np.array([draw.sample(range(topology.endpoints), 2) for _ in range(count)], dtype=np.int32)
        size = np.array([draw.randrange(1, 10**8) for _ in range(count)], dtype=np.int64)
        lines = [
            f"links {len(rate)}",
            *(f"{r!r} {lat / 1e12!r}" for r, lat in zip(rate.tolist(), latency.tolist(), strict=True)),
        ]
        lines.append(f"flows {count}")
        for i in range(count):
            route = topology.route(*ends[i].tolist())
            lines.append(f"{float(at[i]) / 1e12!r} {size[i]} {len(route)} {' '.join(map(str, route))}")
        told.append("\n".join(lines))
        begin = time.perf_counter()
        ours.append(_simulate.messages(topology, "flow", at, ends[:, 0], ends[:, 1], size) / 1e12)
        took += time.perf_counter() - begin
    done = subprocess.run(
        [PEERS / "simgrid_flows"],
        input="\n---\n".join(told),
        capture_output=True,
        text=True,
        check=True,
        timeout=_DEADLINE_S,
    )
    theirs = np.array([float(line) for line in done.stdout.split() if line != "---"])
    both = np.concatenate(ours)
    assert len(theirs) == len(both), (len(theirs), len(both))
    walls = [json.loads(line)["value"] for line in done.stderr.splitlines() if line.startswith("{")]
    worst = float(np.max(np.abs(both - theirs) / theirs))
    figure(
        f"flow level: largest difference to SimGrid over {sets} random networks", worst, "1", 1e-6, peer="SimGrid CM02"
    )
    figure("the same messages, time of ours to SimGrid's", took / sum(walls), "1", 1, peer="SimGrid CM02")


def iteration() -> None:
    """Each alone on the processor."""
    done = subprocess.run(
        [PEERS / "simgrid_iteration", "1024", "64"], capture_output=True, text=True, check=True, timeout=_DEADLINE_S
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    wall = next(one["value"] for one in theirs if one["unit"] == "s" and "wall" in one["name"])
    done = subprocess.run([OURS], capture_output=True, text=True, check=True, timeout=_DEADLINE_S)
    ours = next(json.loads(line)["value"] for line in done.stdout.splitlines() if '1024 ranks, links shared"' in line)
    figure(
        "iteration of 1,024 ranks, links shared: time of ours to SimGrid's", ours / wall, "1", 1, peer="SimGrid CM02"
    )


def main() -> int:
    if not (PEERS / "simgrid_flows").exists():
        print("bench_simgrid: there is no SimGrid to compare with; 'make peers' builds it")
        figure("SimGrid built", 0, "1", None)
        return 0
    agreement(200)
    if OURS.exists():
        iteration()
    return 0


if __name__ == "__main__":
    sys.exit(main())
