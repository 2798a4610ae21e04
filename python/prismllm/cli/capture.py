"""prism capture: N logical ranks on a few slots."""

from __future__ import annotations

import contextlib

import click

from prismllm.cli.common import Output, common_options
from prismllm.cli.hosts import Hosts, host_options
from prismllm.cli.memory import memory_options, memory_rows, memory_summary
from prismllm.cli.memory_size import MemorySize
from prismllm.cli.rank_list import RankList, check_ranks
from prismllm.cli.run import PROGRAM_LAST, program_options, run_program
from prismllm.cli.solo import Answers, answers_rows, check_solo, explained, rules_path
from prismllm.launch import LaunchResult, Program, RunFolder
from prismllm.units import counted, duration, size


def data_summary(folder: str, counted_by_coordinator: dict) -> dict:
    return {"dir": folder} | {
        key: counted_by_coordinator[key] for key in ("bytes", "stored_bytes", "tensors", "distinct")
    }


def data_rows(summary: dict) -> list[tuple[str, str]]:
    if not (kept := summary.get("data")):
        return []
    of = f"{counted(kept['tensors'], 'tensor')} of {size(kept['bytes'])}"
    return [("data", f"{of}, {kept['distinct']} different of {size(kept['stored_bytes'])}, in {kept['dir']}")]


@click.command("capture", short_help="N logical ranks on M slots: the structure of what they do",
               context_settings=PROGRAM_LAST,
               epilog="Example: prism capture -n 64 --slots 2 -o job.prism train.py --steps 3")  # fmt: skip
@program_options
@click.option("--slots", type=click.IntRange(0), metavar="M",
              help="Ranks that compute at a time  [default: visible accelerators, or else cores]")  # fmt: skip
@click.option("--device-swap", type=click.Choice(["auto", "never", "always"]), default="auto", show_default=True,
              help="Move ranks' accelerator memory to the host while others compute: where it does not hold all of "
              "them, or each time")  # fmt: skip
@click.option(
    "--fake-device", type=click.Path(exists=True, dir_okay=False), hidden=True
)  # for tests, see FakeDeviceSwap
@click.option("--schedule", type=click.Choice(["need", "round-robin"]), default="need", hidden=True)  # to compare with
@click.option(
    "--memory-budget", type=MemorySize(), default=0, help="For tensors in flight, e.g. 4G  [default: 3/4 of free]"
)
@click.option("--spill-dir", type=click.Path(exists=True, file_okay=False, writable=True),
              help="On a disk, for tensors beyond the budget  [default: the temporary folder]")  # fmt: skip
@click.option("--data", metavar="DIR", help="Keep what ranks put into communications there, each tensor once.")
@click.option("--for-ranks", type=RankList(), help="With --data: only what these ranks receive, e.g. 0-3,8")
@click.option("--inputs", metavar="RULES", help="Ranks run alone, one after the other; what their peers would have "
              "sent comes from this file of rules (see prismllm.inputs), or from 'builtin' ones alone.")  # fmt: skip
@click.option("--classes", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
              help="With --inputs: of ranks that are alike one runs, and a sample; or all run.")  # fmt: skip
@click.option("--verify", type=click.IntRange(0), metavar="K",
              help="Ranks of each class that run as well, to be compared  [default: 5%, 2 to 16]")  # fmt: skip
@memory_options
@click.option("--explain", is_flag=True, help="With --inputs: list which rule answered which communication.")
@host_options
@common_options
def command(output: Output, program: Program, trace: str, world_size: int, ranks_per_node: int | None,
            slots: int | None, device_swap: str, fake_device: str | None, schedule: str, memory_budget: int,
            spill_dir: str | None, data: str | None, for_ranks: tuple[int, ...] | None, inputs: str | None,
            classes: str, verify: int | None, memory: dict, explain: bool, hosts: Hosts,
            log_dir: str | None) -> None:  # fmt: skip
    """Run PROGRAM as N logical ranks on M slots and write the structure of what it did."""
    import os

    from prismllm.cli.data_folder import data_folder
    from prismllm.launch import devices as accelerators

    devices = accelerators.fake_devices(fake_device) if fake_device else accelerators.visible_devices()
    if slots == 0 and hosts.agents == 0:
        raise click.UsageError("--slots 0 leaves nobody to compute; accepted: at least 1, or 0 with --agents K")
    slots = min(devices or os.cpu_count() or 1 if slots is None else slots, world_size)
    if devices:
        if hosts.agents:
            raise click.UsageError("--agents: hosts with accelerators cannot share a capture yet; for a program that "
                                   "uses none, set CUDA_VISIBLE_DEVICES= in the environment")  # fmt: skip
        if ranks_per_node and ranks_per_node > min(devices, slots):
            raise click.UsageError(
                f"--nproc-per-node {ranks_per_node}: with accelerators LOCAL_RANK chooses a device, and there "
                f"are {devices} for {counted(slots, 'slot')}; accepted: 1 to {min(devices, slots)} "
                "(a program that uses none: CUDA_VISIBLE_DEVICES= in the environment)"
            )
        ranks_per_node = ranks_per_node or accelerators.ranks_per_node(world_size, devices, slots)
        devices = min(devices, ranks_per_node)
    elif device_swap == "always":
        raise click.UsageError("--device-swap always: no accelerator is visible; accepted: auto, never")
    check_solo(inputs, explain, verify, data, hosts)
    if for_ranks is not None:
        if not data:
            raise click.UsageError("--for-ranks says what --data keeps; give that as well")
        check_ranks("--for-ranks", for_ranks, world_size)

    def merge(folder: RunFolder, result: LaunchResult) -> dict:
        from prismllm.cli.fragments import merge_run
        from prismllm.solo.merging import alike_ranks

        answers = Answers.of_run(folder, world_size) if inputs else None
        if answers:
            answers.check()
        alike = alike_ranks(folder, world_size) if inputs else None
        graph = merge_run(folder.fragments, trace, result.notes, answers.provenance(inputs) if answers else {}, alike)
        if kept:
            kept.publish()
        return {
            "ranks": world_size,
            "classes": graph.class_count,
            "slots": result.statistics["slots"],
            "hosts": 1 + hosts.agents,
            "wall_s": result.wall_s,
            "switches": result.statistics["switches"],
            "switches_lower_bound": result.statistics["switches_lower_bound"],
            "peak_private_bytes_per_rank": max(result.peak_private_bytes, default=0),
            "memory": memory_summary(graph.rank_class, result.memory, memory),
            "staged_bytes_peak": result.statistics["staged_bytes_peak"],
            "spilled_bytes_peak": result.statistics["spilled_bytes_peak"],
            "device_swaps": result.statistics["device_swaps"],
            "device_swap_s": result.statistics["device_swap_s"],
            **({"data": data_summary(data, result.statistics["data"])} if kept else {}),
            **({"inputs": answers.summary(inputs) | alike.summary()} if answers else {}),
            "trace": trace,
            "notes": result.notes,
        }

    with data_folder(data) if data else contextlib.nullcontext() as kept:
        summary = run_program(output, log_dir, trace, merge, hosts.join(output), route="capture",
                              world_size=world_size, program=program,
                              ranks_per_node=ranks_per_node or world_size, slots=slots,
                              schedule=schedule, devices=devices, device_swap=device_swap,
                              fake_device=os.path.abspath(fake_device) if fake_device else "",
                              memory_budget_bytes=memory_budget, **memory, host_timeout_s=hosts.timeout_s,
                              inputs=rules_path(inputs), classes=classes == "auto", verify=verify,
                              spill_dir=os.path.abspath(spill_dir) if spill_dir else "",
                              data_dir=kept.partial if kept else "",
                              data_for_ranks=None if for_ranks is None else list(for_ranks))  # fmt: skip
    notes = summary.pop("notes")
    staged, spilled = (size(summary[f"{what}_bytes_peak"]) for what in ("staged", "spilled"))
    on_disk = f", {spilled} on disk" if summary["spilled_bytes_peak"] else ""
    where = counted(summary["slots"], "slot") + (f" of {summary['hosts']} hosts" if hosts.agents else "")
    output.result(summary)
    swaps = f"{summary['device_swaps']} in {duration(summary['device_swap_s'])}"
    output.table(
        f"captured {program.name}",
        [
            (
                "ranks",
                f"{world_size} on {where}, {counted(summary['classes'], 'class')}",
            ),
            ("time", duration(summary["wall_s"])),
            ("switches", f"{summary['switches']} (at least {summary['switches_lower_bound']} needed)"),
            ("memory", f"up to {size(summary['peak_private_bytes_per_rank'])} private per rank"),
            *memory_rows(summary),
            ("tensors", f"up to {staged} in flight{on_disk}"),
            *data_rows(summary),
            *answers_rows(summary),
            *([("device swaps", swaps)] if summary["device_swaps"] else []),
            ("trace", trace),
            *(("note", note) for note in notes),
        ],
    )
    if explain:
        output.table("answers", explained(summary))
