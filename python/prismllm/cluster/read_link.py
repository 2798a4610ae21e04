"""Links, from any table that has their keys."""

from __future__ import annotations

from prismllm.cluster.library import link_types
from prismllm.cluster.model import Link
from prismllm.cluster.quantities import BANDWIDTH, DURATION
from prismllm.cluster.tables import Values


def read_link(values: Values, default: Link | None = None, derived: bool = False) -> Link:
    """What neither the table nor its type gives is as in `default`, if there is one. `derived`: the bandwidth follows
    from something else and is 0 here."""
    place = values.place
    known = link_types()[values["type"]] if values["type"] else default
    if values["bandwidth"] is not None:
        bandwidth = float(values["bandwidth"])
    elif derived:
        bandwidth = 0.0
    elif known:
        bandwidth = known.bytes_per_second
    else:
        raise (place / "bandwidth").missing(f"{BANDWIDTH.accepted}; or a type")
    if values["delay"] is not None:
        delay = round(values["delay"])
    elif known:
        delay = known.delay_ps
    else:
        raise (place / "delay").missing(f"{DURATION.accepted}; or a type")
    efficiency = values["efficiency"] or (default.efficiency if default else 1.0)
    return Link(bandwidth, delay, efficiency, *_burst(values, bandwidth))


def _burst(values: Values, bandwidth: float) -> tuple[float, int]:
    """Line rate and burst, 0 and 0 where there is none."""
    place, burst, line_rate = values.place, values["burst"], values["line_rate"]
    if burst is None and line_rate is None:
        return 0.0, 0
    if burst is None or line_rate is None:
        given, missing = ("line_rate", "burst") if burst is None else ("burst", "line_rate")
        raise (place / given).error(f"{place / given} needs {missing}; accepted: both or none")
    if not bandwidth:
        raise (place / "burst").error(f"{place / 'burst'} needs bandwidth; accepted: with a bandwidth of its own")
    if line_rate < bandwidth:
        accepted = f"at least the bandwidth, {bandwidth:g} bytes per second"
        raise (place / "line_rate").error(
            f"{place / 'line_rate'} is {float(line_rate):g} bytes per second; accepted: {accepted}"
        )
    return float(line_rate), round(burst)
