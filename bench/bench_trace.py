"""How long Python takes to open a trace of 10 M stored nodes, and to have its first columns."""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from prismllm import _graph
from prismllm.trace import load

RANKS, NODES = 4, 2_500_000


def write(path: Path) -> None:
    builder = _graph.Builder(RANKS, timed=True)
    nodes = {"kind": np.zeros(NODES, np.uint8), "start_ns": np.arange(NODES) * 100, "duration_ns": np.full(NODES, 100)}
    for rank in range(RANKS):
        # A mark of its own in each rank: as many classes as ranks, so that nothing is stored once for all.
        builder.add({"rank": rank, "lanes": ["main"], "nodes": nodes, "marks": [rank]})
    _graph.write(builder.finish(), str(path))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.prism"
        write(path)
        opening = []
        for _ in range(5):
            start = time.perf_counter()
            trace = load(path)
            opening.append(time.perf_counter() - start)
        start = time.perf_counter()
        assert len(trace.rank(RANKS - 1).start_ns) == NODES
        first_use = time.perf_counter() - start
    figures = (
        ("open a trace of 10 M nodes from Python", min(opening), 0.05),
        ("check and show 2.5 M nodes of a rank at first use", first_use, 0.5),
    )
    for name, value, limit in figures:
        print(json.dumps({"name": name, "value": value, "unit": "s", "limit": limit}))


if __name__ == "__main__":
    main()
