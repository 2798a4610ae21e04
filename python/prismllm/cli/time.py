"""prism time: what each rank's own spans take, slice by slice."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import Output, check_writable, common_options, wrong_use
from prismllm.cli.fragments import TraceFile
from prismllm.cli.hosts import Hosts, host_options
from prismllm.cli.memory import memory_options, memory_rows, memory_summary
from prismllm.cli.rank_list import RankList, check_ranks
from prismllm.cli.run import PROGRAM_LAST
from prismllm.cli.scratch import scratch_folder
from prismllm.cli.solo import rules_path
from prismllm.cli.time_inputs import network_of, program_of, recorded_rules, rules_of, times_before
from prismllm.cli.trace_first import TraceFirst, trace_and_program
from prismllm.units import counted, duration

_SHOWN = 16  # rows of ranks, and of slices


class _Slices(click.ParamType):
    name = "RANKS,RANKS"

    def convert(self, value, param, ctx):
        if isinstance(value, list):
            return value
        slices = [list(RankList().convert(part, param, ctx)) for part in value.split(",")]
        ranks = [rank for one in slices for rank in one]
        if twice := sorted({rank for rank in ranks if ranks.count(rank) > 1}):
            self.fail(f"rank {twice[0]} is in two slices; accepted: each rank once, as 0-7,8-15")
        return slices


@click.command("time", cls=TraceFirst, short_help="What the ranks of a trace compute, timed slice by slice",
               context_settings=PROGRAM_LAST,
               epilog="Example: prism time job.prism --slots 2 -o job.timed.prism train.py --steps 8")  # fmt: skip
@click.option("-o", "--output", "trace", metavar="FILE", help="The timed trace to write  [default: TRACE.timed.prism]")
@click.option("--slots", type=click.IntRange(1), metavar="M", help="Ranks that compute at a time  [default: cores]")
@click.option("--slices", type=_Slices(), help="Which ranks are real at the same time, e.g. 0-7,8-15  [default: as "
              "many as there are slots, those that talk most together]")  # fmt: skip
@click.option("--by-class", type=click.IntRange(1), metavar="K", help="Time K members of each class of ranks, and all "
              "of one whose members differ by more than each of them from itself  [default: every rank]")  # fmt: skip
@click.option("--plan", "only_plan", is_flag=True, help="Print the slices and stop.")
@click.option("--only", type=RankList(), help="Time these ranks only; the others keep the times of --onto.")
@click.option("--onto", type=TraceFile(), help="With --only: a timed trace of the same structure; in a calibrated one "
              "only what is downstream of a change is computed again.")  # fmt: skip
@click.option("--comm", type=click.Path(exists=True, dir_okay=False), metavar="FILE.toml",
              help="With --onto: the network with which it was calibrated.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, metavar="R",
              help="Run each slice R times; of each rank the run of median computation is kept.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(0), metavar="W", help="Iterations that are dropped  [default: 2]")
@click.option("--inputs", metavar="RULES", help="What the peers send: rules as of `prism capture --inputs`  [default: "
              "those of the trace, or 'builtin']")  # fmt: skip
@click.option("--data", type=click.Path(exists=True, file_okay=False), metavar="DIR",
              help="What the peers send: what `prism capture --data DIR` has kept.")  # fmt: skip
@memory_options
@click.option("--log-dir", metavar="DIR", help="Write what each rank prints to files there instead of passing it on.")
@click.option("-m", "--module", is_flag=True, help="The program is a module, as with python -m.")
@host_options
@trace_and_program
@common_options
def command(output: Output, base: str, trace: str | None, slots: int | None, slices: list[list[int]] | None,
            by_class: int | None, only_plan: bool, only: tuple[int, ...] | None, onto: str | None, comm: str | None,
            repeat: int, warmup: int | None, inputs: str | None, data: str | None, memory: dict, log_dir: str | None,
            module: bool, words: list[str], hosts: Hosts) -> None:  # fmt: skip
    """Run the PROGRAM of TRACE (by default the one that it was captured from), a few ranks at a time, each alone:
    what it receives is answered at once. Write TRACE with the times that each rank's own computation took.

    Waiting and communication are not timed here: `prism calibrate` puts the ranks together."""
    from prismllm.cli.time_hosts import gathered
    from prismllm.cli.time_runs import Runs
    from prismllm.cli.time_values import summary_of
    from prismllm.data import open as recording
    from prismllm.launch.steady import processors_awake
    from prismllm.timing import plan
    from prismllm.trace import load

    with wrong_use(base):
        graph = load(base)
        ranks = graph.ranks
    if slices and (only or by_class):
        raise click.UsageError("--slices names the ranks already; give it without --only and --by-class")
    if (only is None) != (onto is None):
        raise click.UsageError("--only times some ranks and --onto has the times of the others; give both")
    if only is not None and by_class:
        raise click.UsageError("--only names the ranks already; give it without --by-class")
    network = network_of(onto, comm)
    for option, given in (("--slices", [rank for one in slices or [] for rank in one]), ("--only", only or ())):
        check_ranks(option, tuple(given), graph.world_size)
        if absent := sorted(set(given) - set(ranks)):
            raise click.UsageError(f"{option}: rank {absent[0]} was not recorded in {base}")
    if slices and (left := sorted(set(ranks) - {rank for one in slices for rank in one})):
        raise click.UsageError(f"--slices: rank {left[0]} is in none; accepted: every rank once (or --only and --onto)")
    slots = min(slots or os.cpu_count() or 1, graph.world_size)
    wanted = list(only) if only else ranks
    if by_class:
        classes = [[r for r in ranks if graph.rank_class[r] == cls] for cls in range(graph.class_count)]
        wanted = [rank for members in classes for rank in members[:by_class]]
    with wrong_use(base):
        chosen = slices or plan(graph, wanted, slots)
        for rank in ranks:
            graph.rank(rank)  # finds what is damaged
    if only_plan:
        output.result({"slices": chosen})
        output.table(f"slices of {base}", _slice_rows(chosen, len(chosen)))
        return
    before = times_before(graph, onto) if onto else None
    program = program_of(graph.metadata, words, module)
    trace = trace or f"{base.removesuffix('.prism')}.timed.prism"
    check_writable(trace, "--output")
    rules = rules_path(inputs) if inputs else rules_of(graph.metadata)
    if inputs and inputs != "builtin" and not os.path.isfile(inputs):
        raise click.UsageError(f"--inputs: there is no file '{inputs}'; accepted: a file of rules, or 'builtin'")
    if data:
        with wrong_use("--data"):
            recording(data)
    if inputs and data:
        raise click.UsageError("--data is the rule for all; give it without --inputs, or name inputs.recorded() there")
    launch = {
        "route": "capture",
        "world_size": graph.world_size,
        "program": program,
        "ranks_per_node": graph.world_size,
        "slots": slots,
        "host_timeout_s": hosts.timeout_s,
        **memory,
    }
    with (
        scratch_folder("prism-time", trace, shared=hosts.agents > 0) as work,
        gathered(hosts, output) as with_others,
        processors_awake(),
    ):
        if data:
            rules = recorded_rules(work, data)
        runs = Runs(output, log_dir, trace, launch, work, graph, before, network, chosen, bool(by_class), repeat,
                    warmup, with_others)  # fmt: skip
        summary = summary_of(runs, rules, bool(inputs or data), "inputs" in graph.metadata)
    held = memory_summary(graph.graph.rank_class, summary.pop("held"), memory)
    summary |= {"hosts": 1 + hosts.agents, "memory": held}
    output.result(summary)
    untimed = summary["untimed"]
    spread = [
        (f"rank {one['rank']}", f"computes {duration(one['median_s'])} an iteration "
         f"({duration(one['p05_s'])} to {duration(one['p95_s'])})")
        for one in summary["ranks"]
    ]  # fmt: skip
    output.table(
        f"timed {base}",
        [
            ("program", " ".join(program.words)),
            ("slices", _slices_in_words(summary, repeat)),
            *([] if data or summary["values"] in ("peers", "recorded") else
              [("values", "what peers send is made up: losses mean nothing")]),
            ("time", duration(summary["wall_s"])),
            ("iterations", f"{summary['repetitions']} kept of each rank, {summary['warmup_iterations']} dropped"),
            *spread[:_SHOWN],
            *([("", f"and {len(spread) - _SHOWN} more ranks: --json lists all")] if len(spread) > _SHOWN else []),
            *([("iteration", ", ".join(duration(one["time_s"]) for one in summary["iterations"]))]
              if summary.get("iterations") else []),
            *([("computed again", f"{summary['visited']} of {summary['nodes']} nodes and transfers")]
              if summary.get("visited") else []),
            *memory_rows(summary),
            *([("untimed", f"{counted(len(untimed), 'rank')}, with the times of one of their class: {_list(untimed)}")]
              if untimed else []),
            ("trace", trace),
        ],
    )  # fmt: skip


def _slices_in_words(summary: dict, repeat: int) -> str:
    slices = summary["slices"]
    of = f"{len(slices)} of up to {counted(max(map(len, slices)), 'rank')}"
    return f"{'none: all ranks together' if summary['values'] == 'peers' else of}, {counted(repeat, 'run')}"


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")


def _slice_rows(slices: list[list[int]], shown: int) -> list[tuple[str, str]]:
    return [(f"slice {number}", f"ranks {_list(one)}") for number, one in enumerate(slices[:shown])]
