"""prism health: the exact workload on pairs of units."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import Output, common_options, wrong_use
from prismllm.cli.emulate import check_emulation, run_emulation
from prismllm.cli.rank_list import RankList
from prismllm.cli.replay import network_options
from prismllm.cli.run import PROGRAM_LAST
from prismllm.cli.time_inputs import program_of
from prismllm.cli.trace_first import TraceFirst, trace_and_program
from prismllm.launch.temporary import TemporaryFolder
from prismllm.units import duration


class _Slowed(click.ParamType):
    name = "UNIT=FACTOR"

    def convert(self, value, param, ctx):
        unit, _, factor = value.partition("=")
        try:
            return int(unit), float(factor)
        except ValueError:
            self.fail(f"'{value}'; accepted: UNIT=FACTOR, as 1=1.3")


@click.command("health", cls=TraceFirst, short_help="The exact workload on pairs of units: which one is slow",
               context_settings=PROGRAM_LAST, epilog="Example: prism health job.cal.prism --units 0-7")  # fmt: skip
@click.option("--units", type=RankList(), help="Processors to be checked, e.g. 0-3,8; three at least  [default: all]")
@click.option("--ranks", type=RankList(), default="0,1", show_default=True, help="The two ranks that a pair runs")
@click.option("--comm", type=click.Path(exists=True, dir_okay=False), metavar="FILE.toml",
              help="As of prism emulate.")  # fmt: skip
@click.option("--data", type=click.Path(exists=True, file_okay=False), metavar="DIR", help="As of prism emulate.")
@click.option("--tolerance", type=click.FloatRange(0.001, 10), default=0.05, show_default=True,
              help="A unit that needs more than so much more than the others is slow.")  # fmt: skip
@click.option("--slow", "slowed", type=_Slowed(), multiple=True,
              help="To try it out: sleeps on this unit last so many times as long. Repeatable.")  # fmt: skip
@click.option("-m", "--module", is_flag=True, help="The program is a module, as with python -m.")
@trace_and_program
@common_options
def command(output: Output, base: str, words: list[str], units: tuple[int, ...] | None, ranks: tuple[int, ...],
            comm: str | None, data: str | None, tolerance: float, slowed: tuple[tuple[int, float], ...],
            module: bool) -> None:  # fmt: skip
    """Run two ranks of PROGRAM on one pair of units after the other, among virtual ranks, and compare what the units
    need for it. Each unit is in two pairs, once in the role of either rank. Exit code 1 where one is slow."""
    from prismllm.emulation import Emulated
    from prismllm.emulation.units import pairs_of, verdicts
    from prismllm.launch.steady import processors_awake
    from prismllm.trace import load

    with wrong_use(base):
        graph = load(base)
    check_emulation(base, graph, ranks, data)
    if len(ranks) != 2:
        raise click.UsageError(f"--ranks: {len(ranks)} ranks; accepted: two")
    there = sorted(os.sched_getaffinity(0))
    units = units or tuple(there)
    if absent := sorted(set(units) - set(there)):
        raise click.UsageError(f"--units: there is no processor {absent[0]} for this process; accepted: {there}")
    if len(units) < 2:
        raise click.UsageError("--units: one unit has nobody to be compared with; accepted: two or more")
    if unknown := [unit for unit, _ in slowed if unit not in units]:
        raise click.UsageError(f"--slow: unit {unknown[0]} is not one of {list(units)}")
    if comm:
        network_options(comm, "flow", ())
    program = program_of(graph.metadata, words, module)
    emulated = Emulated(os.path.abspath(base), os.path.abspath(comm) if comm else "",
                        data=os.path.abspath(data) if data else "")  # fmt: skip
    factors = dict(slowed)
    runs = {}
    with TemporaryFolder("health") as work, processors_awake():
        for pair in pairs_of(units):
            placed = {str(rank): {"processor": unit, "slowed": factors.get(unit, 1.0)}
                      for rank, unit in zip(ranks, pair, strict=True)}  # fmt: skip
            logs = os.path.join(work, f"units-{pair[0]}-{pair[1]}")
            summary = run_emulation(output, logs, os.path.join(work, "run.prism"), graph, program, ranks, emulated,
                                    units=placed)  # fmt: skip
            runs[pair] = summary["sandbox"]
            output.say(f"units {pair[0]} and {pair[1]} are through")
    found = verdicts(units, runs, tolerance)
    slow = [one.unit for one in found if not one.ok]
    words_of = {True: "ok", False: "slow"}
    output.result({"units": [{"unit": one.unit, "iteration_time_s": one.iteration_time_s, "busy_s": one.busy_s,
                              "slower_by": one.slower_by, "verdict": words_of[one.ok]} for one in found],
                   "slow": slow})  # fmt: skip
    output.table(
        f"health by {base}",
        [
            (f"unit {one.unit}", f"{words_of[one.ok]}: computes {duration(one.busy_s)} an iteration, "
                                 f"{one.slower_by:+.1%}; its pairs need {duration(one.iteration_time_s)}")
            for one in found
        ],
    )  # fmt: skip
    if slow:
        raise SystemExit(1)
