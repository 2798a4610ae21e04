"""Runs of programs on the testbed, by the launcher that also records on the real backend."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

from prismllm.launch import LaunchOptions, Program, RunFolder, launch
from prismllm.launch.steady import processors_awake
from prismllm.launch.temporary import TemporaryFolder
from prismllm.testbed.deadline import Deadline
from prismllm.testbed.link import Link
from prismllm.testbed.star import DEVICE, Star
from prismllm.testbed.times import Run, read_times

_PORT = 29500  # of rank 0's store: below those that the system gives out by itself
MOST_RANKS = 4096


class Testbed:
    """`hosts` hosts on a switch, links of `bits_per_second` both ways (testbed.rate). A context; on the main thread of
    a process that has no other business with its children. ValueError for what cannot be, TestbedError where this
    machine has no testbed."""

    __test__ = False  # for pytest

    def __init__(self, hosts: int, bits_per_second: int, **link):
        self.star = Star(hosts, Link(bits_per_second, **link))

    def __enter__(self) -> Testbed:
        with contextlib.ExitStack() as held:
            held.enter_context(self.star)
            held.enter_context(processors_awake())
            self._held = held.pop_all()
        return self

    def __exit__(self, *error) -> None:
        self._held.__exit__(*error)

    def host_of(self, rank: int, ranks: int) -> int:
        """Consecutive ranks share a host."""
        return rank // ranks_per_host(ranks, self.star.hosts)

    def place(self, options: LaunchOptions) -> LaunchOptions:
        """The launch on these hosts: a host is a node."""
        if options.route != "real":
            raise ValueError(f"a run of route '{options.route}' on the testbed; accepted: real")
        ranks = options.world_size
        return replace(
            options,
            namespaces=[self.star.path(self.host_of(rank, ranks)) for rank in range(ranks)],
            steady=True,
            ranks_per_node=ranks_per_host(ranks, self.star.hosts),
            master_addr=self.star.address(0),
            master_port=_PORT,
            environment=options.environment | {"GLOO_SOCKET_IFNAME": DEVICE, "NCCL_SOCKET_IFNAME": DEVICE},
        )

    def run(self, program: Program, ranks: int, folder: str | None = None, deadline_s: float = 600.0) -> Run:
        """Runs the program to its end, recorded. Fragments of the recording and logs are kept in `folder`, or nothing
        is. LaunchError where it fails, or has not ended at the deadline."""
        with contextlib.ExitStack() as stack:
            path = folder or stack.enter_context(TemporaryFolder("testbed"))
            place = RunFolder(os.path.abspath(path))
            place.create()
            stack.callback(place.close)
            options = LaunchOptions("real", ranks, program, place.path, place.logs,
                                    environment={"OMP_NUM_THREADS": "1"})  # fmt: skip
            done = launch(self.place(options), show_output=False, company=Deadline(deadline_s))
            return read_times(place.logs, ranks, done)


def ranks_per_host(ranks: int, hosts: int) -> int:
    """ValueError where they do not fill the hosts evenly."""
    if not 1 <= ranks <= MOST_RANKS or ranks % hosts:
        raise ValueError(f"{ranks} ranks on {hosts} hosts; accepted: as many on each, at most {MOST_RANKS} in all")
    return ranks // hosts
