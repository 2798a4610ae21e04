"""Packets (ns-3, `make ns3` installs it) beside the flow level: the same collectives, the links' efficiency stated."""

import json
import sys

from prismllm import simulate
from prismllm.simulate.packets import program_of

RATE, LATENCY_S, EFFICIENCY = 50e9, 1e-6, 8948 / 9002
MIB = 1 << 20
CASES = (
    ("all_reduce", "ring", 8, MIB),
    ("all_reduce", "ring", 16, MIB),
    ("all_reduce", "ring", 32, MIB),
    ("all_reduce", "ring", 8, 8 * MIB),
    ("all_reduce", "halving_doubling", 16, MIB),
    ("all_reduce", "tree", 16, MIB),
    ("all_to_all", "direct", 16, MIB),
    ("broadcast", "tree", 16, MIB),
)


def figure(name: str, value: float, unit: str, limit: float | None = None, **more) -> None:
    print(json.dumps({"name": name, "value": value, "unit": unit, "limit": limit, **more}), flush=True)


def main() -> int:
    try:
        program_of("ns3")
    except ValueError as reason:
        print(f"bench_packets: {reason}")
        figure("prism-ns3 installed", 0, "1")
        return 0
    for op, algorithm, ranks, part in CASES:
        run = {"ranks": ranks, "bytes": ranks * part, "algorithm": algorithm, "latency_s": LATENCY_S}
        flows = simulate.collective(op, bandwidth=RATE * EFFICIENCY, **run)
        packets = simulate.collective(op, bandwidth=RATE, network="ns3", **run)
        name = f"{op} by {algorithm}, {ranks} ranks, {part // MIB} MiB a part"
        figure(f"{name}: packets, simulated", packets.time_s * 1e6, "us")
        figure(f"{name}: packets to flow level, less 1", packets.time_s / flows.time_s - 1, "1",
               0.05 if algorithm == "ring" else None, peer="flow level")  # fmt: skip
        figure(f"{name}: packets, wall", packets.wall_s, "s")
        figure(f"{name}: flow level, wall", flows.wall_s, "s")
        figure(f"{name}: events of packets", packets.events, "1")
        figure(f"{name}: events of the flow level", flows.events, "1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
