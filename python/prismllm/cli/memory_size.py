"""Sizes of memory as options of commands."""

from __future__ import annotations

import click


class MemorySize(click.ParamType):
    name = "SIZE"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        number, factor = value, 1
        for unit, power in (("K", 10), ("M", 20), ("G", 30), ("T", 40)):
            for suffix in (unit, unit + "IB"):
                if value.upper().endswith(suffix):
                    number, factor = value[: -len(suffix)], 1 << power
        try:
            bytes_ = int(float(number) * factor)
        except (ValueError, OverflowError):
            bytes_ = 0
        if not 0 < bytes_ < 1 << 63:
            self.fail(f"'{value:.40}' is not a size; accepted: a number of bytes below 2^63, with K, M, G or T (or "
                      "KiB and so on) for powers of 1024")  # fmt: skip
        return bytes_
