"""The coordinator's process: forked from the zygote before the ranks, it serves until the last of them has ended."""

from __future__ import annotations

import json
import os
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
        spill_directory=os.fsencode(options.spill_dir or options.run_dir),
        must_spill=bool(options.spill_dir),
        schedule=options.schedule,
        data_directory=os.fsencode(options.data_dir),
        data_for_ranks=options.data_for_ranks,
    )
    ended: dict = {"error": None}
    try:
        coordinator.run()
    except RuntimeError as failure:
        ended["error"] = str(failure)
    except OSError as failure:  # what the system refuses is no fault of the program's
        ended |= {"error": str(failure), "internal": True}
    ended |= {"time_ns": time.monotonic_ns(), "statistics": json.loads(coordinator.statistics_json())}
    write_status(status, **ended)
    return 0 if ended["error"] is None else 1
