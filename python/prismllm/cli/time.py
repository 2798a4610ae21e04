"""prism time: what each rank's own spans take, slice by slice."""

from __future__ import annotations

import json
import os
import shutil
import tempfile

import click

from prismllm.cli.common import CommandError, Output, check_writable, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile, fragments_in
from prismllm.cli.rank_list import RankList, check_ranks
from prismllm.cli.run import PROGRAM_LAST, run_program
from prismllm.cli.solo import rules_path
from prismllm.launch import LaunchResult, Program, RunFolder
from prismllm.units import counted, duration

_SHOWN = 16  # rows of ranks, and of slices
_RECORDED = """from prismllm import inputs

inputs.rule("recorded", optional=True{condition}).peers(inputs.recorded({folder!r}))
"""
_WHOLE = ', dtype=("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")'


class _Differs(CommandError):
    """The ranks have not done what the trace says."""


class _TraceFirst(click.Command):
    """TRACE may stand before the options: all that follows the program's name is the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-"):
            args = ["--trace", *args]
        return super().parse_args(ctx, args)


class _TraceOption(click.Option):
    """TRACE to those who read an error: they have not written the option."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return "'TRACE'"


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


@click.command("time", cls=_TraceFirst, short_help="What the ranks of a trace compute, timed slice by slice",
               context_settings=PROGRAM_LAST,
               epilog="Example: prism time job.prism --slots 2 -o job.timed.prism train.py --steps 8")  # fmt: skip
@click.option("--trace", "base", type=TraceFile(), cls=_TraceOption, hidden=True)
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
@click.option("--log-dir", metavar="DIR", help="Write what each rank prints to files there instead of passing it on.")
@click.option("-m", "--module", is_flag=True, help="The program is a module, as with python -m.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TRACE [OPTIONS] [PROGRAM [ARGS]...]")
@common_options
def command(output: Output, base: str | None, trace: str | None, slots: int | None, slices: list[list[int]] | None,
            by_class: int | None, only_plan: bool, only: tuple[int, ...] | None, onto: str | None, comm: str | None,
            repeat: int, warmup: int | None, inputs: str | None, data: str | None, log_dir: str | None, module: bool,
            words: tuple[str, ...]) -> None:  # fmt: skip
    """Run the PROGRAM of TRACE (by default the one that it was captured from), a few ranks at a time, each alone:
    what it receives is answered at once. Write TRACE with the times that each rank's own computation took.

    Waiting and communication are not timed here: `prism calibrate` puts the ranks together."""
    from prismllm.data import open as recording
    from prismllm.launch.steady import processors_awake
    from prismllm.timing import plan
    from prismllm.trace import load

    words = list(words)
    if base is None:
        if not words:
            raise click.UsageError("the trace is missing; accepted: prism time TRACE [OPTIONS] [PROGRAM [ARGS]...]")
        ctx = click.get_current_context()
        if len(words) > 1 and words[1].startswith("-"):
            raise click.UsageError(f"'{words[1]}' stands behind TRACE and other options before it; accepted: all "
                                   "options behind TRACE, or all before it")  # fmt: skip
        base = TraceFile().convert(words.pop(0), next(p for p in ctx.command.params if p.name == "base"), ctx)
    with wrong_use(base):
        graph = load(base)
        ranks = graph.ranks
    if slices and (only or by_class):
        raise click.UsageError("--slices names the ranks already; give it without --only and --by-class")
    if (only is None) != (onto is None):
        raise click.UsageError("--only times some ranks and --onto has the times of the others; give both")
    if only is not None and by_class:
        raise click.UsageError("--only names the ranks already; give it without --by-class")
    network = _network_of(onto, comm)
    for option, given in (("--slices", [rank for one in slices or [] for rank in one]), ("--only", only or ())):
        check_ranks(option, tuple(given), graph.world_size)
        if absent := sorted(set(given) - set(ranks)):
            raise click.UsageError(f"{option}: rank {absent[0]} was not recorded in {base}")
    if slices and (left := sorted(set(ranks) - {rank for one in slices for rank in one})):
        raise click.UsageError(f"--slices: rank {left[0]} is in none; accepted: every rank once (or --only and --onto)")
    slots = min(slots or os.cpu_count() or 1, graph.world_size)
    members = [sorted(r for r in ranks if graph.rank_class[r] == cls) for cls in range(graph.class_count)]
    wanted = list(only) if only else [r for one in members for r in one[:by_class]] if by_class else ranks
    with wrong_use(base):
        chosen = slices or plan(graph, wanted, slots)
        for rank in ranks:
            graph.rank(rank)  # finds what is damaged
    if only_plan:
        output.result({"slices": chosen})
        output.table(f"slices of {base}", _slice_rows(chosen, len(chosen)))
        return
    before = _times_before(graph, onto) if onto else None
    program = _program(graph.metadata, words, module)
    trace = trace or f"{base.removesuffix('.prism')}.timed.prism"
    check_writable(trace, "--output")
    rules = rules_path(inputs) if inputs else _rules_of(graph.metadata)
    if inputs and inputs != "builtin" and not os.path.isfile(inputs):
        raise click.UsageError(f"--inputs: there is no file '{inputs}'; accepted: a file of rules, or 'builtin'")
    if data:
        with wrong_use("--data"):
            recording(data)
    if inputs and data:
        raise click.UsageError("--data is the rule for all; give it without --inputs, or name inputs.recorded() there")
    launch = {"route": "capture", "world_size": graph.world_size, "program": program,
              "ranks_per_node": graph.world_size, "slots": slots}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="prism-time-") as work, processors_awake():
        if data:
            rules = _recorded(work, data, "")

        def run(rules: str) -> tuple[dict, float]:
            runs = []
            for number in range(repeat):
                kept = tempfile.mkdtemp(dir=work, prefix=f"run-{number}-")

                def keep(folder: RunFolder, result: LaunchResult, kept: str = kept) -> dict:
                    shutil.move(folder.fragments, kept)
                    with open(folder.classes) as file:
                        return {"wall_s": result.wall_s, **json.load(file)}

                run = run_program(output, log_dir, trace, keep, inputs=rules, classes=False, slices=chosen,
                                  members_of_class=members if by_class else None, timed_trace=os.path.abspath(base),
                                  warm_up=warmup, **launch)  # fmt: skip
                runs.append((os.path.join(kept, "fragments"), run))
            return _write(graph, before, network, runs, trace, chosen, warmup), sum(run["wall_s"] for _, run in runs)

        try:
            summary, wall_s = run(rules)
        except _Differs as reason:
            if inputs or data or "inputs" in graph.metadata:
                raise
            output.notice(f"{reason}. Captured again, to see what whole numbers the peers send")
            numbers = os.path.join(work, "numbers")
            os.mkdir(numbers)
            run_program(output, log_dir, trace, lambda *_: {}, data_dir=numbers, data_of_whole_numbers=True, **launch)
            summary, wall_s = run(_recorded(work, numbers, _WHOLE))
    summary["wall_s"] = wall_s
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
            ("slices", f"{len(chosen)} of up to {counted(max(map(len, chosen)), 'rank')}, {counted(repeat, 'run')}"),
            *([] if data else [("values", "what peers send is made up: losses mean nothing")]),
            ("time", duration(summary["wall_s"])),
            ("iterations", f"{summary['repetitions']} kept of each rank, {summary['warmup_iterations']} dropped"),
            *spread[:_SHOWN],
            *([("", f"and {len(spread) - _SHOWN} more ranks: --json lists all")] if len(spread) > _SHOWN else []),
            *([("iteration", ", ".join(duration(one["time_s"]) for one in summary["iterations"]))]
              if summary.get("iterations") else []),
            *([("computed again", f"{summary['visited']} of {summary['nodes']} nodes and transfers")]
              if summary.get("visited") else []),
            *([("untimed", f"{counted(len(untimed), 'rank')}, with the times of one of their class: {_list(untimed)}")]
              if untimed else []),
            ("trace", trace),
        ],
    )  # fmt: skip


def _recorded(folder: str, data: str, condition: str) -> str:
    """A file of rules: the peers send what they sent in a run that was recorded."""
    path = os.path.join(folder, "recorded.py")
    with open(path, "w") as file:
        file.write(_RECORDED.format(folder=os.path.abspath(data), condition=condition))
    return path


def _network_of(onto: str | None, comm: str | None):
    """That of a calibrated trace; None where transfers have times of their own."""
    from prismllm.cli.replay import network_options
    from prismllm.trace import load

    calibrated = load(onto).metadata.get("calibrated", {}) if onto else {}
    name = calibrated.get("comm", "") if isinstance(calibrated, dict) else ""
    file, comma, kind = str(name).rpartition(", ")
    if not comma:  # "recorded", "closed form", or not calibrated
        if comm:
            raise click.UsageError("--comm is for a trace of --onto that was calibrated on a network")
        return None
    if not comm:
        raise click.UsageError(f"--onto: {onto} was calibrated on {name}; give that file with --comm")
    if os.path.basename(comm) != file:
        raise click.UsageError(f"--comm {comm}: {onto} was calibrated on {file}")
    return network_options(comm, kind, ())


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")


def _slice_rows(slices: list[list[int]], shown: int) -> list[tuple[str, str]]:
    return [(f"slice {number}", f"ranks {_list(one)}") for number, one in enumerate(slices[:shown])]


def _program(metadata: dict, words: list[str], module: bool) -> Program:
    if not words:
        words, module = _recorded_program(metadata.get("program"))
    if not words:
        raise click.UsageError("the trace does not say which program it is of; name it: prism time TRACE PROGRAM ...")
    chosen = Program(words[0], module, words[1:])
    try:
        chosen.check()
    except ValueError as reason:
        raise click.UsageError(str(reason)) from None
    return chosen


def _recorded_program(words) -> tuple[list[str], bool]:
    """(name and arguments, whether it is a module). Under torchrun the record has the interpreter and its options."""
    if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        return [], False
    if os.path.basename(words[0]).startswith("python"):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return (words[1:], True) if words[:1] == ["-m"] else (words, False)


def _rules_of(metadata: dict) -> str:
    """By which the trace was captured, where they are still there."""
    of = metadata.get("inputs")
    rules = of.get("rules") if isinstance(of, dict) else None
    return os.path.abspath(rules) if rules and isinstance(rules, str) and os.path.isfile(rules) else "builtin"


def _times_before(graph, path: str):
    """The trace of --onto, found to be of the same structure before anything runs."""
    from prismllm.trace import diff, load

    with wrong_use(path):
        before = load(path)
        equal, first = diff(graph, before)
    if not before.timed:
        raise click.UsageError(f"--onto: {path} has no times; accepted: a trace that prism time has written")
    if not equal:
        raise click.UsageError(f"--onto: {path} is of another structure: {_words_of(first, graph)} there")
    return before


def _words_of(first: dict, graph) -> str:
    """Of a difference between the trace and another."""
    from prismllm.cli.diff import _in_words

    return _in_words(first, graph).replace(" in A ", " in the trace ").removesuffix(" in B")


def _slices_of(timed) -> list[list[int]]:
    told = timed.metadata.get("timing", {}) if timed is not None else {}
    slices = told.get("slices", []) if isinstance(told, dict) else []
    return slices if isinstance(slices, list) and all(isinstance(one, list) for one in slices) else []


def _write(graph, before, network, runs: list[tuple[str, dict]], path: str, slices: list[list[int]],
           warmup: int | None) -> dict:  # fmt: skip
    import numpy as np

    from prismllm import _graph
    from prismllm.timing import repetitions, warm_up
    from prismllm.trace import Trace, diff, load

    base = graph if before is None else before
    took: dict[int, list[tuple[int, str, np.ndarray]]] = {}
    for folder, _ in runs:
        for fragment in fragments_in(folder):
            own = load(fragment)
            rank = own.ranks[0]
            columns = own.rank(rank)
            marks = graph.rank(rank).mark_node
            same = len(columns.node_kind) == len(graph.rank(rank).node_kind)
            each = repetitions(marks if same else marks[:0], columns.node_kind, columns.node_lane, columns.duration_ns)
            took.setdefault(rank, []).append((int(each.sum()), fragment, each))
    chosen = {rank: sorted(of)[(len(of) - 1) // 2] for rank, of in sorted(took.items())}
    iterations = min(len(each) for _, _, each in chosen.values())
    dropped = warm_up(iterations, warmup)
    kept = [one for one in ([r for r in s if r not in chosen] for s in _slices_of(before)) if one]
    split = sorted({cls for _, run in runs for cls in run["split"]})
    timing = {"method": "slices", "warmup_iterations": dropped, "slices": kept + slices}
    metadata = graph.metadata | {"timing": timing, "clock_domain": [f"rank {r}" for r in range(graph.world_size)]}
    paths = [os.fsencode(fragment) for _, fragment, _ in chosen.values()]
    try:
        timed = Trace(_graph.with_spans_of(base.graph, paths, json.dumps(metadata)))
        equal, first = diff(graph, timed)
    except ValueError as reason:
        raise _Differs(f"what the ranks did is not what the trace says: {reason}", 3) from None
    if not equal:
        raise _Differs(f"the program does not do what the trace says: {_words_of(first, graph)} now", 3)
    again = {}
    if "calibrated" in base.metadata:
        from prismllm.calibrate import realign

        with replaying(before.path):
            done = realign(base, timed, list(chosen), network)
        timed = done.trace
        again = {"iterations": [{"index": one.index, "time_s": one.time_s} for one in done.iterations],
                 "visited": done.visited, "nodes": done.nodes}  # fmt: skip
    timed.write(path)
    untimed = [rank for rank in graph.ranks if rank not in chosen and before is None]

    def quantile(each, q):  # the last iteration has what follows the loop in it
        return float(np.quantile(each[dropped : -1 if len(each) > dropped + 1 else None], q)) * 1e-9

    return {
        "slices": slices,
        "repetitions": iterations - dropped,
        "warmup_iterations": dropped,
        "untimed": untimed,
        "split": split,
        "ranks": [
            {"rank": rank, "median_s": quantile(each, 0.5), "p05_s": quantile(each, 0.05),
             "p95_s": quantile(each, 0.95)}
            for rank, (_, _, each) in chosen.items()
        ],
        **again,
        "trace": path,
    }  # fmt: skip
