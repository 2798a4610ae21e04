"""A run that is to end in time."""

from __future__ import annotations

import time

from prismllm.launch import Company, LaunchError


class Deadline(Company):
    """Ends the run's processes where it lasts longer, and is then the cause of its failure."""

    def __init__(self, seconds: float):
        self.seconds, self.at = seconds, time.monotonic() + seconds
        self.passed_ns = 0

    def join(self, selector, end_run) -> None:
        self.end_run = end_run

    def turn(self) -> None:
        if not self.passed_ns and time.monotonic() > self.at:
            self.passed_ns = time.monotonic_ns()
            self.end_run()

    def failures(self) -> list[tuple[int, LaunchError]]:
        text = f"the program has not ended within {self.seconds:g} s"
        return [(self.passed_ns, LaunchError(text, 3))] if self.passed_ns else []
