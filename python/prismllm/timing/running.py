"""The zygote's side: slice after slice, and more of a class whose members are not alike."""

from __future__ import annotations

import json
import os

import numpy as np

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.timing.repetitions import repetitions, warm_up


class Slices:
    """Gives the ranks to run, slice after slice; all of one have run when the next is asked for."""

    def __init__(self, options: LaunchOptions):
        self.options = options
        self.folder = RunFolder(options.run_dir)
        self.to_come = [list(one) for one in options.slices]
        self.timed: set[int] = set()
        self.classes = {min(members): members for members in options.members_of_class or []}
        self.split: list[int] = []  # lowest ranks of the classes of which all are timed

    def batch(self) -> list[int]:
        if not self.to_come:
            self.to_come = self._of_split_classes()
        if not self.to_come:
            with open(self.folder.classes, "w") as file:
                json.dump({"split": self.split}, file)
            return []
        ranks = self.to_come.pop(0)
        self.timed.update(ranks)
        return ranks

    def _of_split_classes(self) -> list[list[int]]:
        """All others of the classes whose timed members differ by more than what each of them differs from itself."""
        left: list[int] = []
        for first, members in sorted(self.classes.items()):
            own = [self._repetitions(rank) for rank in members if rank in self.timed]
            if first in self.split or len(own) < 2:
                continue
            medians = [float(np.median(one)) for one in own]
            spread = max(float(np.quantile(one, 0.95) - np.quantile(one, 0.05)) for one in own)
            if max(medians) - min(medians) > spread:
                self.split.append(first)
                left += [rank for rank in members if rank not in self.timed]
        return [left[i : i + self.options.slots] for i in range(0, len(left), self.options.slots)]

    def _repetitions(self, rank: int) -> np.ndarray:
        """[repetitions] ns. Iterations are those of the trace that is timed."""
        from prismllm.trace import load

        base = load(self.options.timed_trace).rank(rank)
        own = load(os.path.join(self.folder.fragments, f"rank-{rank}.prism")).rank(rank)
        if len(own.node_kind) != len(base.node_kind):  # the command says where they differ
            return np.zeros(1)
        took = repetitions(base.mark_node, own.node_kind, own.node_lane, own.duration_ns)
        dropped = warm_up(len(took), self.options.warm_up)
        return took[dropped : -1 if len(took) > dropped + 1 else None]  # the last has what follows the loop in it
