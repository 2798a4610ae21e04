"""Runs a program on the testbed again and again; prints its iteration times as JSON.

    python -m tests.testbed --hosts 8 --rate 400mbit -n 8 --repeat 5 train.py --steps 8

Exit codes as of prism: 2 wrong use, or no testbed on this machine; 3 the program failed."""

import json
import sys

import click

from prismllm.cli.run import PROGRAM_LAST
from prismllm.launch import LaunchError, Program
from prismllm.testbed import Testbed, TestbedError, rate, repeated


@click.command(context_settings=PROGRAM_LAST)
@click.option("--hosts", type=click.IntRange(1), metavar="H", help="[default: one for each rank]")
@click.option("--rate", "bits", default="400mbit", show_default=True, help="Of each host's link, both ways.")
@click.option("-n", "ranks", type=click.IntRange(1), required=True, metavar="N")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True)
@click.option("--deadline", type=float, default=600.0, show_default=True, help="Seconds that a run may take.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True, metavar="PROGRAM [ARGS]...")
def main(hosts, bits, ranks, repeat, deadline, program):
    chosen = Program(program[0], False, list(program[1:]))
    try:
        chosen.check()
        with Testbed(hosts or ranks, rate(bits)) as bed:
            runs = repeated(bed, chosen, ranks, repeat, deadline_s=deadline)
    except (ValueError, TestbedError) as reason:
        print(f"testbed: {reason}", file=sys.stderr)
        sys.exit(2)
    except LaunchError as failure:
        print(f"testbed: {failure}", file=sys.stderr)
        sys.exit(failure.exit_code)
    place = {"ranks": ranks, "hosts": hosts or ranks, "rate_bits_per_second": rate(bits)}
    print(json.dumps({"program": chosen.stem, **place, **runs.to_json()}))


main()
