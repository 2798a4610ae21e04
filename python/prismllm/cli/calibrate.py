"""prism calibrate: one timeline from spans that were timed slice by slice."""

from __future__ import annotations

import os

import click

from prismllm.cli.common import Output, check_writable, common_options, replaying, wrong_use
from prismllm.cli.fragments import TraceFile
from prismllm.cli.replay import NETWORKS, network_options
from prismllm.units import counted, duration


@click.command(
    "calibrate",
    short_help="One timeline from a timed trace, with its spread",
    epilog="Example: prism calibrate job.timed.prism --comm model.toml -o job.cal.prism",
)
@click.argument("trace", type=TraceFile())
@click.option("--comm", type=click.Path(exists=True, dir_okay=False), metavar="FILE.toml",
              help="Transfers take what they take on this network (a model of the links, or a cluster), rank i on its "
              "device i  [default: recorded times, else a closed form]")  # fmt: skip
@click.option("--network", type=click.Choice(NETWORKS[:3]),
              help="flow: links are shared; nic: a message at a time; closed: each alone  [default: flow]")  # fmt: skip
@click.option("--samples", type=click.IntRange(1, 1_000_000), metavar="N",
              help="Executions to sample  [default: as many as give 400 iterations, at least 32]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, metavar="N",
              help="Of what is drawn; the number of cores does not matter.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(0, 2**31 - 1), metavar="N",
              help="Iterations that neither are drawn nor count  [default: the trace's, or 1]")  # fmt: skip
@click.option("-o", "--output", "path", metavar="FILE", help="Where to  [default: TRACE with .cal.prism]")
@common_options
def command(output: Output, trace: str, comm: str | None, network: str | None, samples: int | None, seed: int,
            warmup: int | None, path: str | None) -> None:  # fmt: skip
    """Put the ranks of TRACE, timed slice by slice, onto one timeline in which every dependency holds.

    Each rank draws its whole iterations, and the job is executed with them, many times: the median iteration and its
    spread. The execution nearest to the median is written."""
    path = path or os.path.splitext(trace)[0].removesuffix(".timed") + ".cal.prism"
    check_writable(path, "-o")
    if network and not comm:
        raise click.UsageError("--network is of a --comm file")
    from prismllm.calibrate import calibrate

    options = network_options(comm, network or "flow", ()) if comm else None
    name = f"{os.path.basename(comm)}, {network or 'flow'}" if comm else None
    with wrong_use(trace), replaying(trace):
        done = calibrate(trace, options, network_name=name, samples=samples, seed=seed, warmup=warmup)
    done.trace().write(path)
    output.result(done.to_json() | {"trace": path})
    time, spread = done.iteration_time_s, counted(len(done.iteration_times_s), "execution")
    rows = [
        ("iteration", f"{duration(time.median)} (5% below {duration(time.p05)}, 95% below {duration(time.p95)})"),
        ("uncalibrated", f"{duration(done.uncalibrated_iteration_time_s)} (the slowest rank, waiting for nobody)"),
        ("of medians", duration(done.iteration_time_of_medians_s)),
        ("sampled", f"{spread}, seed {seed}, warm-up of {counted(done.warmup_iterations, 'iteration')} left out"),
        ("transfers", done.comm),
        ("trace", path),
    ]
    output.table(f"calibrated {trace}", rows + [("note", note) for note in done.notes])
