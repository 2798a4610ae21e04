"""The runs of `prism time`: all slices, on what peers are said to send, or all ranks among themselves."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

from prismllm.cli.common import Output
from prismllm.cli.fragments import fragments_in
from prismllm.cli.run import alone, run_program
from prismllm.cli.time_written import write_timed
from prismllm.launch import LaunchResult, RunFolder
from prismllm.launch.handout import on_this_host
from prismllm.timing import Took, classes_that_differ
from prismllm.trace import Trace


@dataclass(frozen=True)
class Values:
    """What the peers of a rank send it."""

    name: str  # in the summary: rules, made up, whole numbers, recorded, peers
    rules: str = "builtin"
    quick: bool = True  # real numbers are made up without a question, where no rule is for them
    played: str = ""  # a recording that this command has just made
    whole_numbers: bool = False  # of that, these and objects alone
    peers: bool = False  # they are there, and send it themselves


@dataclass
class Runs:
    output: Output
    log_dir: str | None
    trace: str  # to be written
    launch: dict  # options of every run
    work: str  # a folder for what is kept meanwhile
    graph: Trace
    before: Trace | None  # of --onto
    network: object
    slices: list[list[int]]
    by_class: bool
    repeat: int
    warmup: int | None
    with_others: Callable = on_this_host  # also takes the slices
    _wall_s: float = field(default=0.0, init=False)
    _memory: dict[int, dict] = field(default_factory=dict, init=False)  # by rank, of its first run

    def run(self, values: Values) -> dict:
        """The summary, once the trace is written. Differs where the ranks have not done what the trace says, RunFailed
        where one has failed."""
        took, slices, split = Took(self.graph), list(self.slices), []
        wanted = frozenset(rank for one in slices for rank in one)
        self._wall_s, self._memory = 0.0, {}
        if values.peers:
            self._run(values, None, None if self.by_class else wanted, took)
            slices = [took.ranks]
        else:
            self._run(values, slices, None, took)
            if self.by_class:
                ranks = self.graph.ranks
                classes = [[r for r in ranks if self.graph.rank_class[r] == c] for c in range(self.graph.class_count)]
                split = classes_that_differ(took, classes, self.warmup)
                left = [rank for members in split for rank in members if rank not in wanted]
                slots = self.launch["slots"]
                if more := [left[i : i + slots] for i in range(0, len(left), slots)]:
                    self._run(values, more, None, took)
                    slices += more
        summary = write_timed(self.graph, self.before, self.network, took, self.trace, slices, self.warmup,
                              values.peers)  # fmt: skip
        return summary | {"split": [min(members) for members in split], "values": values.name, "wall_s": self._wall_s,
                          "held": self._memory}  # fmt: skip

    def _run(self, values: Values, slices: list[list[int]] | None, only: frozenset[int] | None, took: Took) -> None:
        """`repeat` times, all slices; None: all ranks together, of which `only` some count."""
        for number in range(self.repeat):
            kept = tempfile.mkdtemp(dir=self.work, prefix=f"run-{number}-")

            def keep(folder: RunFolder, result: LaunchResult, kept: str = kept) -> dict:
                shutil.move(folder.fragments, kept)
                self._memory = result.memory | self._memory
                return {"wall_s": result.wall_s}

            options = {"timed": True}
            with_others = alone
            if slices is not None:
                options |= {"inputs": values.rules, "quick": values.quick, "classes": False, "played": values.played,
                            "played_whole_numbers": values.whole_numbers}  # fmt: skip
                with_others = functools.partial(self.with_others, slices=slices)
            done = run_program(self.output, self.log_dir, self.trace, keep, with_others, **options, **self.launch)
            self._wall_s += done["wall_s"]
            took.add(fragments_in(os.path.join(kept, "fragments")), only)

    def record(self, whole_numbers: bool, most_bytes: int) -> str:
        """Captures the program, and returns the folder of what its ranks have put into communications."""
        folder = tempfile.mkdtemp(dir=self.work, prefix="data-")
        run_program(self.output, self.log_dir, self.trace, lambda *_: {}, data_dir=folder,
                    data_of_whole_numbers=whole_numbers, data_limit_bytes=most_bytes, **self.launch)  # fmt: skip
        return folder
