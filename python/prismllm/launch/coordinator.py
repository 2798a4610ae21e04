"""The coordinator's process: forked from the zygote before the ranks, it serves until the last of them has ended."""

from __future__ import annotations

import json
import time

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.rank import write_status


def run_coordinator(options: LaunchOptions, address: str) -> int:
    from prismllm import _c10d

    status = RunFolder(options.run_dir).coordinator_status
    coordinator = _c10d.Coordinator(
        address=address,
        world_size=options.world_size,
        slots=options.slots,
        memory_budget_bytes=options.memory_budget_bytes,
    )
    error = None
    try:
        coordinator.run()
    except RuntimeError as failure:
        error = str(failure)
    write_status(status, time_ns=time.monotonic_ns(), error=error, statistics=json.loads(coordinator.statistics_json()))
    return 0 if error is None else 1
