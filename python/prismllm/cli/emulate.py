"""prism emulate: chosen ranks run for real, the others are virtual."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict

import click

from prismllm.cli.common import Output, check_writable, common_options, wrong_use
from prismllm.cli.memory import memory_options, memory_rows, memory_summary
from prismllm.cli.rank_list import RankList, check_ranks
from prismllm.cli.replay import NETWORKS, network_options
from prismllm.cli.run import PROGRAM_LAST, run_program
from prismllm.cli.run_folder import RunFailed
from prismllm.cli.time_inputs import program_of
from prismllm.cli.trace_first import TraceFirst, trace_and_program
from prismllm.launch import LaunchResult, RunFolder
from prismllm.launch.temporary import TemporaryFolder
from prismllm.units import counted, duration, size

_SHOWN = 16  # rows of ranks


@click.command("emulate", cls=TraceFirst, short_help="Chosen ranks run for real, the others are virtual",
               context_settings=PROGRAM_LAST,
               epilog="Example: prism emulate job.cal.prism --ranks 0-3 --data job.data --comm model.toml")  # fmt: skip
@click.option("--ranks", type=RankList(), required=True, help="Those that run for real, e.g. 0-3,8")
@click.option("-o", "--output", "trace", metavar="FILE",
              help="The trace of the real ranks to write  [default: TRACE with .emu.prism]")  # fmt: skip
@click.option("--comm", type=click.Path(exists=True, dir_okay=False), metavar="FILE.toml",
              help="Transfers take what they take on this network (a model of the links, or a cluster)  [default: the "
              "trace's own times]")  # fmt: skip
@click.option("--network", type=click.Choice(NETWORKS[:3]),
              help="flow: links are shared; nic: a message at a time; closed: each alone  [default: flow]")  # fmt: skip
@click.option("--plane", type=click.Choice(["modelled"]), default="modelled", show_default=True,
              help="Who moves the data of groups with virtual members: our model.")  # fmt: skip
@click.option("--data", type=click.Path(exists=True, file_okay=False), metavar="DIR",
              help="What virtual ranks send: what `prism capture --data DIR --for-ranks RANKS` has kept  [default: "
              "made up; where the program cannot live with that, it is captured once more]")  # fmt: skip
@click.option("--check-values", is_flag=True,
              help="With --data: name the first communication in which a real rank sends something else than it did "
              "then.")  # fmt: skip
@click.option("--on-divergence", type=click.Choice(["fail", "warn"]), default="fail", show_default=True,
              help="Where a real rank does something else than the trace says; with warn its sizes and types "
              "may differ.")  # fmt: skip
@click.option("--explain-groups", is_flag=True, help="Print which process groups are left, and what of them, and stop.")
@click.option("--debug", is_flag=True,
              help="breakpoint() and pdb.set_trace() of real ranks open here (standard input and error); nothing times "
              "out meanwhile.")  # fmt: skip
@click.option("--log-dir", metavar="DIR", help="Write what each rank prints to files there instead of passing it on.")
@click.option("-m", "--module", is_flag=True, help="The program is a module, as with python -m.")
@memory_options
@trace_and_program
@common_options
def command(output: Output, base: str, words: list[str], ranks: tuple[int, ...], trace: str | None, comm: str | None,
            network: str | None, plane: str, data: str | None, check_values: bool, on_divergence: str,
            explain_groups: bool, debug: bool, log_dir: str | None, module: bool, memory: dict) -> None:  # fmt: skip
    """Run some ranks of PROGRAM (by default the one that TRACE was captured from) for real, among virtual ones that do
    what TRACE says, when it says so, given what the real ranks do.

    The times that are written are those of the emulated job."""
    from prismllm.emulation import Emulated
    from prismllm.launch.steady import processors_awake
    from prismllm.trace import load

    with wrong_use(base):
        graph = load(base)
    check_emulation(base, graph, ranks, data)
    if explain_groups:
        from prismllm.cli.explain_groups import explain_groups as explain

        explain(output, base, graph, ranks)
        return
    if network and not comm:
        raise click.UsageError("--network is of a --comm file")
    if comm:
        network_options(comm, network or "flow", ())
    if check_values and not data:
        raise click.UsageError("--check-values compares with --data; give that as well")
    trace = trace or f"{base.removesuffix('.prism').removesuffix('.cal')}.emu.prism"
    check_writable(trace, "--output")
    program = program_of(graph.metadata, words, module)
    emulated = Emulated(os.path.abspath(base), os.path.abspath(comm) if comm else "", network or "flow",
                        os.path.abspath(data) if data else "", on_divergence == "warn", check_values)  # fmt: skip
    with TemporaryFolder("emulate") as work, processors_awake(), _terminal(debug) as terminal:
        try:
            summary = run_emulation(output, log_dir, trace, graph, program, ranks, emulated, memory, terminal=terminal)
        except RunFailed as reason:
            if data or debug or not _may_be_values(reason):
                raise
            output.notice("the program does not live with what virtual ranks are taken to send. Captured once more, to "
                          "see what they do send")  # fmt: skip
            output.say(str(reason))
            reason.forget()
            emulated.data = os.path.join(work, "data")
            os.mkdir(emulated.data)
            run_program(output, log_dir, trace, lambda *_: {}, slots=os.cpu_count() or 1, data_dir=emulated.data,
                        data_for_ranks=list(ranks), **_launch(graph, program))  # fmt: skip
            summary = run_emulation(output, log_dir, trace, graph, program, ranks, emulated, memory)
    output.result(summary | {"trace": trace})
    output.table(f"emulated {base}", _rows(summary, program, graph.world_size, trace))


@contextlib.contextmanager
def _terminal(debug: bool):
    """Descriptors of this command for the debuggers of ranks; none, where there are to be none."""
    if not debug:
        yield []
        return
    try:
        ends = [os.dup(0), os.dup(2)]
    except OSError as reason:
        raise click.UsageError(f"--debug reads standard input and writes standard error: {reason.strerror}") from None
    yield ends
    for end in ends:
        os.close(end)


def check_emulation(base: str, graph, ranks: tuple[int, ...], data: str | None) -> None:
    """That these ranks of the trace can be real, with what --data holds."""
    from prismllm.data import open as recording

    check_ranks("--ranks", ranks, graph.world_size)
    if absent := sorted(set(ranks) - set(graph.ranks)):
        raise click.UsageError(f"--ranks: rank {absent[0]} was not recorded in {base}")
    if not data:
        return
    with wrong_use("--data"):
        kept = recording(data)
        if kept.world_size != graph.world_size:
            raise ValueError(f"'{data}' is of a job of {kept.world_size} ranks; accepted: {graph.world_size}")
        if kept.for_ranks is not None and tuple(kept.for_ranks) != ranks:
            raise ValueError(f"'{data}' has what ranks {kept.for_ranks} receive; accepted: {list(ranks)}, or of all "
                             "ranks")  # fmt: skip


def _may_be_values(failure: RunFailed) -> bool:
    """Whether the program could have failed because of what virtual ranks were taken to send: by itself, that is."""
    return failure.failure.told is not None and "OutOfMemoryError" not in str(failure)


def _launch(graph, program) -> dict:
    return {"route": "capture", "world_size": graph.world_size, "program": program, "ranks_per_node": graph.world_size}


def run_emulation(output: Output, log_dir: str | None, trace: str, graph, program, ranks: tuple[int, ...], emulated,
                  memory: dict | None = None, **options) -> dict:  # fmt: skip
    """One run of these ranks among virtual ones; its figures."""

    def merge(folder: RunFolder, result: LaunchResult) -> dict:
        from prismllm.emulation.summary import summary_of, write_trace

        if not graph.timed:
            result.notes.append(
                "the trace was captured and never timed: virtual ranks compute as long as they did then, and transfers "
                "take what a closed form says (prism time, prism calibrate)"
            )
        summary = summary_of(write_trace(folder, graph, ranks, trace, result), result)
        return summary | ({"memory": memory_summary(graph.rank_class, result.memory, memory)} if memory else {})

    return run_program(output, log_dir, trace, merge, slots=len(ranks), sandbox=list(ranks), emulated=asdict(emulated),
                       **(memory or {}), **options, **_launch(graph, program))  # fmt: skip


def _rows(summary: dict, program, world_size: int, trace: str) -> list[tuple[str, str]]:
    lag = summary["lag_s"]
    invented = summary["invented_values"]
    rows = [
        ("program", " ".join(program.words)),
        ("ranks", f"{len(summary['sandbox'])} real, {world_size - len(summary['sandbox'])} virtual"),
        ("groups", f"{summary['groups']['total']}, {summary['groups']['instantiated']} of them with a real rank"),
        *[(f"iteration {one['index']}", duration(one["time_s"])) for one in summary["iterations"]],
        *[
            (f"rank {one['rank']}", f"{duration(one['iter_s'])} an iteration, peak {size(one['peak_memory_bytes'])}")
            for one in summary["sandbox"][:_SHOWN]
        ],
    ]
    if (left := len(summary["sandbox"]) - _SHOWN) > 0:
        rows.append(("", f"and {left} more ranks: --json lists all"))
    rows += memory_rows(summary)
    rows.append(("lag", f"p50 {duration(lag['p50'])}, p99 {duration(lag['p99'])}, at most {duration(lag['max'])}"))
    if invented:
        of = counted(sum(one["count"] for one in invented), "communication")
        rows.append(("values", f"made up in {of}: losses mean nothing (--data)"))
    if checked := summary.get("checked_values"):
        same = f"real ranks send what they sent then, in {checked['checked']} communications"
        other = f"differ from then in {checked['different']} of {checked['checked']} communications; first: "
        rows.append(("sent", other + checked["first"] if checked["different"] else same))
    rows += [("differs", text) for text in summary["differences"][:3]]
    rows += [("note", text) for text in summary["notes"]]
    return [*rows, ("trace", trace)]
