"""A model's parameters, and the cluster file that says the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from prismllm.comm.plan import PAIRS, Place

_LINE_OF_RATE = 20.0  # how much faster than its rate a link passes its burst, as far as nothing tells


@dataclass(frozen=True)
class CommModel:
    """Between hosts every host has a link each way, which in t seconds passes min(20 rate t, burst + rate t) bytes,
    `delay_s` later; hosts themselves pass `inside_bytes_per_second`, `inside_delay_s` later. Each message takes
    `message_s` of a processor at its sender and again at its receiver, each operation `operation_s` at each member,
    and `copy_bytes_per_second` is copied of what is gathered; processors are shared by all. A receiver's word
    that it is ready waits behind `queue_bytes` of what its host is sending."""

    message_s: float = 20e-6
    operation_s: float = 50e-6
    copy_bytes_per_second: float = 2e9
    bytes_per_second: float = 1e9
    burst_bytes: float = 20e3
    delay_s: float = 30e-6
    inside_bytes_per_second: float = 2e9
    inside_delay_s: float = 20e-6
    queue_bytes: float = 100e3

    def to_toml(self, place: Place, processors: int, name: str, comment: str = "") -> str:
        """For prismllm.cluster. In picoseconds and whole bytes, as the simulator calculates."""

        def seconds(value: float) -> str:
            return f'"{round(value * 1e12)} ps"'

        lines = [*(f"# {line}".rstrip() for line in comment.splitlines()), f'name = "{name}"', "", "[[node]]",
                 f"count = {place.hosts}", f"devices = {place.per_host}"]  # fmt: skip
        device = '{ name = "process", memory = "1 GB", memory_bandwidth = "1 GB/s", pcie = 6 }'
        lines += [f"device = {device}", "", "[node.scale_up]", 'kind = "nvswitch"',
                  f"bandwidth = {self.inside_bytes_per_second:.0f}",
                  f"delay = {seconds(self.inside_delay_s / 2)}"]  # fmt: skip
        # What is between a process and its host's link takes no time of its own, and is no way between processes.
        lines += ["", "[node.pcie]", f"switches = {place.per_host}", "bandwidth = 1e15", "delay = 0"]
        if place.hosts > 1:
            lines += ["", "[node.nic]", "count = 1", f"bandwidth = {self.bytes_per_second:.0f}",
                      f"line_rate = {_LINE_OF_RATE * self.bytes_per_second:.0f}",
                      f"burst = {max(round(self.burst_bytes), 1)}", f"delay = {seconds(self.delay_s / 2)}",
                      "", "[fabric]", 'kind = "switch"']  # fmt: skip
        lines += ["", "[processors]", f"count = {processors}", f"message_time = {seconds(self.message_s)}",
                  f"operation_time = {seconds(self.operation_s)}",
                  f"copy = {self.copy_bytes_per_second:.0f}", f"queue = {self.queue_bytes:.0f}"]  # fmt: skip
        return "\n".join(lines) + "\n"

    def free(self, place: Place, ops: Collection[str]) -> tuple[str, ...]:
        """The parameters that measurements of these operations at the place say something about."""
        names = ["message_s"]
        if set(ops) - set(PAIRS):
            names.append("operation_s")
        if "all_gather" in ops:
            names.append("copy_bytes_per_second")
        if place.hosts > 1:
            names += ["bytes_per_second", "burst_bytes", "delay_s"]
            if "crossing" in ops:
                names.append("queue_bytes")
        if place.per_host > 1:
            names += ["inside_bytes_per_second", "inside_delay_s"]
        return tuple(names)
