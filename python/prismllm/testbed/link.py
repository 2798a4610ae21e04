"""Links of the testbed: what they let through, and the words in which tc says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(k|m|g)?bit")
_TIMES = {None: 1, "k": 10**3, "m": 10**6, "g": 10**9}
SLOWEST, FASTEST = 10**6, 10**11  # bits per second


class TestbedError(Exception):
    """This machine cannot do it; says what is missing."""

    __test__ = False  # for pytest


def rate(text: str) -> int:
    """Bits per second, from tc's words ("400mbit"). ValueError for what is none."""
    match = _RATE.fullmatch(text)
    bits = round(float(match[1]) * _TIMES[match[2]]) if match else 0
    if not SLOWEST <= bits <= FASTEST:
        raise ValueError(f"rate '{text}'; accepted: 1mbit to 100gbit, for example 400mbit or 2.5gbit")
    return bits


@dataclass(frozen=True)
class Link:
    """From a host to the switch (`out`) and back, each direction limited by a token bucket: in t seconds it lets
    through burst + rate x t, and what the processors manage. Small bursts keep the rate the same for small and large
    messages; the queues behind them never drop anything."""

    bits_per_second: int
    mtu: int = 9000  # fewer packets: less processor time
    out_burst_bytes: int = 20_000
    in_burst_bytes: int = 40_000
    queue_bytes: int = 16 << 20

    def limited(self, device: str, outward: bool) -> str:
        burst = self.out_burst_bytes if outward else self.in_burst_bytes
        return f"qdisc add dev {device} root tbf rate {self.bits_per_second} burst {burst} limit {self.queue_bytes}"
