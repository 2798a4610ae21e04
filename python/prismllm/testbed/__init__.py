"""A testbed on one machine: real processes on the real backend, on hosts that are network namespaces, joined by links
of limited rate. What a run takes there is the truth that emulation is compared with.

    with Testbed(hosts=8, rate=rate("400mbit")) as bed:
        run = bed.run(Program("train.py"), ranks=8)
    run.iteration_s

Needs root, and ip and tc of iproute2; TestbedError says what is missing. Nothing has a name outside this process:
the kernel removes hosts and links with the last process that uses them, however that ends."""

from prismllm.testbed.bed import Testbed
from prismllm.testbed.link import Link, TestbedError, rate
from prismllm.testbed.times import Run, Runs, repeated

__all__ = ["Link", "Run", "Runs", "Testbed", "TestbedError", "rate", "repeated"]
