"""prism bench-comm: measure links and backend where the job would run, and fit the communication model."""

from __future__ import annotations

import contextlib
import math
import os
import statistics

import click

from prismllm.cli.common import Output, check_writable, common_options
from prismllm.cli.memory_size import MemorySize
from prismllm.cli.run_folder import run_folder
from prismllm.cli.testbed import made, testbed_options
from prismllm.launch.devices import visible_devices
from prismllm.units import counted, duration, size

_MISFITS_SHOWN = 5


@click.command(
    "bench-comm",
    short_help="Measure links and backend, fit the communication model",
    epilog="Example: prism bench-comm -n 8 --hosts 8 --rate 400mbit -o model.toml",
)
@click.option("-n", "ranks", type=click.IntRange(2, 1024), required=True, metavar="N", help="Number of ranks.")
@click.option("--backend", default="gloo", show_default=True, metavar="NAME")
@click.option("-o", "--output", "path", default="model.toml", show_default=True, metavar="FILE",
              help="The model, a cluster file for --comm and --cluster.")  # fmt: skip
@click.option("--plot", metavar="FILE.html", help="Write how far the model is from each measurement.")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Measure these only. Repeatable  [default: all]")
@click.option("--max-bytes", "largest", type=MemorySize(), default="1M", show_default=True, metavar="SIZE")
@click.option("--repeat", type=click.IntRange(3, 1000), default=11, show_default=True, help="Times that each is done.")
@click.option("--processors", type=click.IntRange(1, 4096), metavar="P",
              help="That all ranks share  [default: those of this machine]")  # fmt: skip
@click.option("--deadline", type=click.FloatRange(1), default=3600.0, show_default=True, metavar="SECONDS")
@testbed_options
@common_options
def command(output: Output, ranks: int, backend: str, path: str, plot: str | None, ops: tuple[str, ...], largest: int,
            repeat: int, processors: int | None, deadline: float, bed: tuple[int, int] | None) -> None:  # fmt: skip
    """Measure what communication takes among N ranks, and write the model that a simulation of the same fits best.

    Operations, sizes, groups of neighbours and of strides, all of a kind at once, alone and back to back. Every other
    size is held out: by it the model is judged."""
    _check_devices(backend, ranks)
    check_writable(path, "-o")
    if plot:
        check_writable(plot, "--plot")
    from prismllm.comm import Place, fit, make_plan, measure
    from prismllm.comm.fitting import check_plan
    from prismllm.comm.plan import OPS
    from prismllm.comm.report import BAD, by_operation, in_words, misfits, residual, write_plot
    from prismllm.export.atomic import replacing

    processors = processors or len(os.sched_getaffinity(0))
    try:
        place = Place(ranks, bed[0] if bed else 1)
        points = make_plan(place, ops or OPS, largest)
        check_plan(points, place)
    except ValueError as reason:
        raise click.UsageError(str(reason)) from None
    if not math.isfinite(deadline):
        raise click.UsageError(f"--deadline: {deadline}; accepted: seconds from 1 on")
    output.say(f"{len(points)} points, each {repeat} times")
    with run_folder(output, "bench-comm") as (folder, _), made(bed) if bed else contextlib.nullcontext() as testbed:
        measured = measure(points, ranks, backend, repeat, testbed, deadline, folder)
    try:
        found = fit(measured, place, processors, backend)
    except ValueError as reason:
        raise click.UsageError(f"the model cannot be fitted: {reason}") from None
    rows, overall, bad = by_operation(found), residual(found.residuals), misfits(found)
    shown = [in_words(one) for one in bad[:_MISFITS_SHOWN]]
    if len(bad) > len(shown):
        shown.append(f"and {len(bad) - len(shown)} more")
    if bad:
        output.notice(f"the model is off by more than {BAD:.0%} at {counted(len(bad), 'size')} held out: do not trust "
                      f"it there. {'; '.join(shown)}")  # fmt: skip
    where = f"{bed[0]} hosts at {bed[1] / 1e6:g} Mb/s" if bed else "this machine"
    comment = "\n".join([f"Measured by prism bench-comm: {backend}, {ranks} ranks, {where}.",
                         f"Of the sizes held out half are off by {overall:.1%} or less.",
                         *(f"Not to be trusted: {one}" for one in shown)])  # fmt: skip
    with replacing(path) as write:
        write(found.model.to_toml(place, processors, f"{backend} on {where}", comment))
    if plot:
        write_plot(found, plot)
    output.result({
        "fits": rows, "residual": overall, "misfits": bad, "model": path,
        "points": [{"op": one.measured.point.op, "groups": one.measured.point.groups, "bytes": one.measured.point.bytes,
                    "rounds": one.measured.point.rounds, "held_out": one.measured.point.held_out,
                    "time_s": one.measured.time_s, "spread": one.measured.spread, "predicted_s": one.predicted_s}
                   for one in found.residuals],
    })  # fmt: skip
    large = [abs(one.error) for one in found.held_out if one.measured.time_s >= 5e-3]
    of_large = f"; of times from 5 ms on by {statistics.median(large):.1%}" if large else ""
    model = found.model
    between = f"{model.bytes_per_second * 8e-6:.1f} Mb/s, burst {size(round(model.burst_bytes))}" if bed else "none"
    output.table(
        f"measured {len(measured)} points",
        [
            ("between hosts", between + (f", latency {duration(model.delay_s)}" if bed else "")),
            *([("inside", f"{model.inside_bytes_per_second / 1e6:.0f} MB/s, latency {duration(model.inside_delay_s)}")]
              if place.per_host > 1 else []),
            ("processors", f"{processors}: {duration(model.message_s)} a message and end, "
                           f"{duration(model.operation_s)} an operation and member"),
            *((f"{row['op']}, {row['ranks']}", f"{duration(max(row['alpha_s'], 0.0))} + "
               f"{row['beta_s_per_byte'] * 1e9:.2f} ns/B, off by {row['residual']:.1%}") for row in rows),
            ("held out", f"half off by {overall:.1%} or less{of_large}"),
            *(("not to be trusted", one) for one in shown),
            ("model", path),
        ],
    )  # fmt: skip


def _check_devices(backend: str, ranks: int) -> None:
    """NCCL moves between GPUs, one for each rank."""
    if "nccl" in backend.lower() and (there := visible_devices()) < ranks:
        visible = f"{counted(there, 'GPU')} {'is' if there == 1 else 'are'} visible"
        raise click.UsageError(f"--backend {backend} needs a GPU for each of {ranks} ranks, and {visible}; accepted: "
                               "as many GPUs as ranks, or gloo")  # fmt: skip
