"""The coordinator's process: forked from the zygote before the ranks, it serves until the last of them has ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.rank import write_status


def _proof(host: dict, name: str) -> bytes:
    return bytes.fromhex(host[name])


def run_coordinator(options: LaunchOptions, address: str) -> int:
    from prismllm import _c10d

    status = RunFolder(options.run_dir).coordinator_status
    swap, note = None, ""
    emulation, virtual_data = None, ""
    if options.emulated is not None:
        from prismllm.emulation import Emulated
        from prismllm.launch.steady import before_others

        before_others()
        try:
            given = Emulated(**options.emulated)
            emulation, virtual_data = given.native(options.sandbox), given.data
        except (ValueError, OSError) as reason:
            write_status(status, error=str(reason), exit_code=2, time_ns=time.monotonic_ns())
            return 1
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
        slots=sum(host["slots"] for host in options.hosts) or options.slots,
        memory_budget_bytes=options.memory_budget_bytes,
        spill_directory=os.fsencode(options.spill_dir or options.run_dir),
        must_spill=bool(options.spill_dir),
        schedule=options.schedule,
        device_of_rank=[rank % options.ranks_per_node for rank in range(options.world_size)] if options.devices else [],
        device_swap=swap,
        swap_always=options.device_swap == "always",
        data_directory=os.fsencode(options.data_dir),
        data_for_ranks=options.data_for_ranks,
        data_of_whole_numbers=options.data_of_whole_numbers,
        data_limit_bytes=options.data_limit_bytes,
        hosts=[(host["name"], host["ranks"], host["slots"], _proof(host, "proof"), _proof(host, "our_proof"))
               for host in options.hosts],
        link_fd=options.link_fd,
        host_timeout_s=options.host_timeout_s,
        more_ranks_fd=options.more_ranks_fd,
        emulation=emulation,
        emulation_data=os.fsencode(virtual_data),
        check_values=bool(options.emulated and options.emulated["check_values"]),
    )  # fmt: skip
    notes = []
    if note and options.world_size > options.devices:  # else nobody shares
        notes = [f"{note}; a device's memory had to hold all of its ranks"]
    return _serve(coordinator.run, status, lambda: json.loads(coordinator.statistics_json()), notes)


def run_relay(options: LaunchOptions, address: str) -> int:
    """In the coordinator's place on every other host of a capture."""
    from prismllm import _c10d

    relay = _c10d.Relay(
        address=address,
        link_fd=options.link_fd,
        host=options.relay["host"],
        world_size=options.world_size,
        first_rank=options.first_rank,
        ranks=len(options.ranks),
        proof=_proof(options.relay, "proof"),
        coordinators_proof=_proof(options.relay, "coordinators_proof"),
        memory_budget_bytes=options.memory_budget_bytes,
        spill_directory=os.fsencode(options.spill_dir or options.run_dir),
        must_spill=bool(options.spill_dir),
        host_timeout_s=options.host_timeout_s,
    )
    return _serve(relay.run, RunFolder(options.run_dir).coordinator_status, dict, told=lambda: relay.was_told)


def _serve(run: Callable[[], None], status: str, statistics: Callable[[], dict], notes: list[str] | None = None,
           told: Callable[[], bool] = lambda: False) -> int:  # fmt: skip
    ended: dict = {"error": None, "notes": notes or []}
    try:
        run()
    except RuntimeError as failure:
        ended["error"] = str(failure)
    except OSError as failure:  # what the system refuses is no fault of the program's
        ended |= {"error": str(failure), "internal": True}
    ended |= {"time_ns": time.monotonic_ns(), "statistics": statistics(), "told": told()}
    write_status(status, **ended)
    return 0 if ended["error"] is None else 1
