"""Amounts with units, as people write them: "400 Gb/s", "1.5 us", "64 MB", "989.5 TFLOP/s".

A plain number is in the base unit (bytes per second, seconds, bytes, FLOP/s). Read in decimal, so that 30.66 ns are
30,660 ps. k, M, G, T, P are powers of 1000, Ki, Mi, Gi, Ti powers of 1024; b are bits, B are bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

_THOUSANDS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGT", 1)}
_PREFIXES = _THOUSANDS | _BINARY
# What json-schema and Python read alike: digits, at most one point, an exponent.
NUMBER = r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?"
DIGITS = 40  # of a number; more are no measurement, and cost time


@dataclass(frozen=True)
class Quantity:
    """What one kind of amount may be. `units`: unit -> how many of the result's unit it is. A plain number counts
    `base` of these. At least `least`, at most `most`, in the result's unit."""

    name: str
    units: dict[str, Decimal]
    base: Decimal
    least: Decimal
    most: Decimal
    accepted: str
    pattern: re.Pattern = field(init=False)

    def __post_init__(self):
        units = "|".join(re.escape(unit) for unit in sorted(self.units, key=lambda unit: (-len(unit), unit)))
        object.__setattr__(self, "pattern", re.compile(f"({NUMBER}) ?({units})"))

    def read(self, value: object) -> Decimal | None:
        """In the result's unit; None for what is no such amount."""
        if isinstance(value, str):
            match = self.pattern.fullmatch(value)
            if not match or len(match[1]) > DIGITS:
                return None
            amount = Decimal(match[1]) * self.units[match[match.lastindex]]
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 10**DIGITS:
            amount = Decimal(str(value)) * self.base  # NaN and infinity are below nothing
        else:
            return None
        return amount if self.least <= amount <= self.most else None


def _scaled(unit: str, times: Decimal, prefixes: dict[str, int] = _PREFIXES) -> dict[str, Decimal]:
    return {prefix + unit: scale * times for prefix, scale in prefixes.items()}


_BIT, _ONE = Decimal("0.125"), Decimal(1)
_TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12}

BANDWIDTH = Quantity(
    "bandwidth", _scaled("b/s", _BIT) | _scaled("bit/s", _BIT) | _scaled("bps", _BIT) | _scaled("B/s", _ONE),
    base=_ONE, least=_ONE, most=Decimal(10**18),
    accepted='a bandwidth such as "400 Gb/s" or "50 GB/s", or a number of bytes per second, from 1 to 1e18',
)  # fmt: skip
DURATION = Quantity(
    "duration", {unit: Decimal(scale) for unit, scale in _TIMES.items()},
    base=Decimal(10**12), least=Decimal(0), most=Decimal(10**15),
    accepted='a time such as "500 ns" or "1.5 us", or a number of seconds, from 0 to 1000 s',
)  # fmt: skip
SIZE = Quantity(
    "size", _scaled("B", _ONE),
    base=_ONE, least=_ONE, most=Decimal(10**18),
    accepted='a size such as "64 MB" or "80 GiB", or a number of bytes, from 1 to 1e18',
)  # fmt: skip
FLOPS = Quantity(
    "flops", _scaled("FLOP/s", _ONE, _THOUSANDS) | _scaled("FLOPS", _ONE, _THOUSANDS),
    base=_ONE, least=Decimal(0), most=Decimal(10**20),
    accepted='a rate such as "989.5 TFLOP/s", or a number of operations per second, from 0 to 1e20',
)  # fmt: skip
