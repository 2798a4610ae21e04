"""What is to be validated, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass

from prismllm.launch import Program

USUAL_RATE = "400mbit"
_USUAL_HOSTS = 8


@dataclass(frozen=True)
class Plan:
    program: Program
    ranks: int  # of the job
    sandbox: tuple[int, ...]  # that run for real in the emulation; none: it is left out
    bed: tuple[int, str] | None = None  # hosts, and the rate of their links as tc writes it; None: loopback
    repeat: int = 5  # real runs
    slots: int = 2
    comm: str | None = None  # a model of the links that was measured before, as prism bench-comm writes it
    loss_pattern: str | None = None  # printed.py

    @property
    def place(self) -> list[str]:
        """Options of commands that run all ranks."""
        return ["--hosts", str(self.bed[0]), "--rate", self.bed[1]] if self.bed else []

    @property
    def per_node(self) -> list[str]:
        """Options of commands that emulate all ranks: each host is a node."""
        return ["--nproc-per-node", str(self.ranks // self.bed[0])] if self.bed else []

    @property
    def chosen(self) -> str:
        return ",".join(map(str, self.sandbox))

    @property
    def models(self) -> list[str]:
        return [self.comm] if self.comm else []

    def __str__(self) -> str:
        return f"{self.bed[0]} hosts at {self.bed[1]}" if self.bed else "loopback"


def usual_hosts(ranks: int) -> int:
    """As many as hold the same number of ranks each, at most 8; a prime number of ranks has a host for each."""
    fitting = [hosts for hosts in range(1, _USUAL_HOSTS + 1) if ranks % hosts == 0]
    return fitting[-1] if fitting[-1] > 1 else ranks
