"""prism validate: real runs beside what prism says of the job without having seen them."""

from __future__ import annotations

import contextlib
import math
import os
import re

import click

from prismllm.cli.common import CommandError, Output, check_writable, claim, common_options
from prismllm.cli.rank_list import RankList, check_ranks
from prismllm.cli.run import PROGRAM_LAST
from prismllm.cli.validate_shown import shown
from prismllm.launch import Program
from prismllm.launch.temporary import TemporaryFolder


@click.command(
    "validate",
    short_help="Real runs of a job beside its emulation: the error table",
    context_settings=PROGRAM_LAST,
    epilog="Example: prism validate -n 8 --hosts 8 --rate 400mbit --ranks 0-1 train.py --steps 8",
)
@click.option("-n", "ranks", type=click.IntRange(1, 4096), required=True, metavar="N", help="Number of ranks.")
@click.option("--ranks", "sandbox", type=RankList(), help="Those that run for real in the emulation  [default: as many "
              "as there are slots, from rank 0 on]")  # fmt: skip
@click.option("--no-emulation", "calibrated_only", is_flag=True, help="Compare the calibrated timeline alone.")
@click.option("--hosts", type=click.IntRange(1, 200), metavar="H", help="Ranks are on H hosts, namespaces around a "
              "switch, N/H on each; root only  [default: for root up to 8]")  # fmt: skip
@click.option("--rate", metavar="RATE", help="Of each host's link, both ways, as tc writes it  [default: 400mbit]")
@click.option("--loopback", is_flag=True, help="All ranks on this machine as it is: what others than root have.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="R", help="Real runs.")
@click.option("--slots", type=click.IntRange(1), metavar="M", help="Ranks that compute at a time in capture and timing"
              "  [default: cores]")  # fmt: skip
@click.option("--comm", type=click.Path(exists=True, dir_okay=False), metavar="MODEL.toml",
              help="A model of the links, measured before in the same place  [default: prism bench-comm]")  # fmt: skip
@click.option("--loss-pattern", metavar="REGEX", help="Losses are what its group matches in the lines that ranks print "
              "[default: \"losses\" of a line RESULT {...}]")  # fmt: skip
@click.option("--deadline", type=click.FloatRange(1), default=3600.0, show_default=True, metavar="SECONDS",
              help="That a step may take.")  # fmt: skip
@click.option("-o", "--output", "path", metavar="FILE.tsv", help="The table, every row  [default: in --run-dir, else "
              "PROGRAM.validate.tsv]")  # fmt: skip
@click.option("-m", "--module", is_flag=True, help="The program is a module, as with python -m.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGS]...")
@common_options
def command(output: Output, ranks: int, sandbox: tuple[int, ...] | None, calibrated_only: bool, hosts: int | None,
            rate: str | None, loopback: bool, repeat: int, slots: int | None, comm: str | None,
            loss_pattern: str | None, deadline: float, path: str | None, module: bool,
            program: tuple[str, ...]) -> int:  # fmt: skip
    """Run PROGRAM R times for real (N processes, its own backend); capture, time, calibrate and emulate it; print how
    far that is from the real runs, each error beside the spread of the runs.

    An error up to 1%, or up to the spread, is ok; exit code 1 where one is not. With --run-dir steps that were finished
    there by the same command are not done again."""
    from prismllm.export.atomic import replacing
    from prismllm.validate import Plan, StepFailed, predicted, real_runs, table, to_tsv

    chosen = Program(program[0], module, list(program[1:]))
    try:
        chosen.check()
    except ValueError as reason:
        raise click.UsageError(str(reason)) from None
    if not module:
        claim(chosen.name, "the program")
    if sandbox and calibrated_only:
        raise click.UsageError("--ranks are those of the emulation; give it without --no-emulation")
    if sandbox is not None:
        check_ranks("--ranks", sandbox, ranks)
    if not math.isfinite(deadline):
        raise click.UsageError(f"--deadline: {deadline}; accepted: seconds from 1 on")
    _check_pattern(loss_pattern)
    slots = min(slots or os.cpu_count() or 1, ranks)
    bed, notes = _place(ranks, hosts, rate, loopback)
    sandbox = () if calibrated_only else sandbox or tuple(range(slots))
    plan = Plan(chosen, ranks, sandbox, bed, repeat, slots, comm and os.path.abspath(comm),
                loss_pattern)  # fmt: skip
    if path or not output.run_dir:
        path = path or f"{chosen.stem}.validate.tsv"
        check_writable(path, "-o")
    temporary = None if output.run_dir else TemporaryFolder("validate")
    folder = os.path.abspath(output.run_dir or os.path.join(temporary.path, "run"))
    kept = f"(what was done is kept in {folder})"
    done = False
    try:
        with _steps(folder, chosen, output, deadline) as steps:
            real = real_runs(plan, steps)
            predictions = predicted(plan, steps)
            rows = table(real, predictions, plan.sandbox)
            path = path or steps.path("table.tsv")
            with replacing(path) as write:
                write(to_tsv(rows))
        done = True
    except StepFailed as failure:
        raise CommandError(f"{failure}\n{kept}", failure.exit_code) from None
    except (KeyboardInterrupt, SystemExit) as ended:
        code = ended.code if isinstance(ended, SystemExit) else 130
        raise CommandError(f"ended by a signal {kept}", code) from None
    finally:
        if temporary:
            temporary.remove() if done else temporary.keep()
    told = shown(output, plan, real, predictions, rows, notes, path)
    output.result(told)
    return 0 if told["ok"] else 1


def _place(ranks: int, hosts: int | None, rate: str | None, loopback: bool):
    """(hosts and rate, or None for loopback; notes)"""
    from prismllm.testbed import Testbed, TestbedError
    from prismllm.testbed import rate as bits
    from prismllm.validate.plan import USUAL_RATE, usual_hosts

    wanted = hosts is not None or rate is not None
    if loopback and wanted:
        raise click.UsageError("--loopback is without hosts and links; give it without --hosts and --rate")
    if loopback:
        return None, []
    bed = (hosts or usual_hosts(ranks), rate or USUAL_RATE)
    if ranks % bed[0]:
        raise click.UsageError(f"--hosts {bed[0]} holds {ranks} ranks; accepted: as many on each host")
    try:
        with Testbed(bed[0], bits(bed[1])):
            return bed, []
    except ValueError as reason:
        raise click.UsageError(f"--rate: {reason}") from None
    except TestbedError as reason:
        if wanted:
            raise click.UsageError(str(reason)) from None
        return None, [f"on loopback, where links have no rate and ranks share the processors: {reason}"]


@contextlib.contextmanager
def _steps(folder: str, program: Program, output: Output, deadline_s: float):
    from prismllm.validate import Steps

    with contextlib.ExitStack() as held:
        try:
            steps = held.enter_context(Steps(folder, program, output.notice, deadline_s))
        except OSError as reason:
            raise click.UsageError(f"--run-dir: {reason}") from None
        yield steps


def _check_pattern(pattern: str | None) -> None:
    try:
        groups = re.compile(pattern or "()").groups
    except re.error as reason:
        raise click.UsageError(f"--loss-pattern: '{pattern}': {reason}") from None
    if groups != 1:
        raise click.UsageError(f"--loss-pattern: '{pattern}' has {groups} groups; accepted: one, around the number")
