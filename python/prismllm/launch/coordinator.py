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
    swap, note = None, ""
    if options.devices and options.device_swap != "never":
        try:
            swap = _c10d.device_swap(options.fake_device, options.devices)
        except OSError as reason:
            note = f"device swap is not viable: {reason}"
        if note and options.device_swap == "always":
            write_status(status, error=f"--device-swap always: {note}", exit_code=2, time_ns=time.monotonic_ns())
            return 1
    coordinator = _c10d.Coordinator(
        address=address,
        world_size=options.world_size,
        slots=options.slots,
        memory_budget_bytes=options.memory_budget_bytes,
        spill_directory=os.fsencode(options.spill_dir or options.run_dir),
        must_spill=bool(options.spill_dir),
        schedule=options.schedule,
        device_of_rank=[rank % options.ranks_per_node for rank in range(options.world_size)] if options.devices else [],
        device_swap=swap,
        swap_always=options.device_swap == "always",
    )
    ended: dict = {"error": None}
    if note and options.world_size > options.devices:  # else nobody shares
        ended["notes"] = [f"{note}; a device's memory had to hold all of its ranks"]
    try:
        coordinator.run()
    except RuntimeError as failure:
        ended["error"] = str(failure)
    except OSError as failure:  # what the system refuses is no fault of the program's
        ended |= {"error": str(failure), "internal": True}
    ended |= {"time_ns": time.monotonic_ns(), "statistics": json.loads(coordinator.statistics_json())}
    write_status(status, **ended)
    return 0 if ended["error"] is None else 1
