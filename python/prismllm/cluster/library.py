"""Device types and kinds of link that cluster files can name; the figures and their sources are in library.toml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from types import MappingProxyType

from prismllm.cluster.errors import Place
from prismllm.cluster.forms import Amount, Choice, Known, Name, Number, Whole
from prismllm.cluster.lines import lines_of, tomllib
from prismllm.cluster.quantities import BANDWIDTH, DURATION, FLOPS, SIZE
from prismllm.cluster.tables import Key, Table, Values

SCALE_UP_KINDS = ("nvswitch", "nvlink_mesh", "pcie")
OLDEST_PCIE, NEWEST_PCIE = 3, 6


@dataclass(frozen=True)
class LinkType:
    """One direction of a link."""

    name: str
    bytes_per_second: float
    delay_ps: int
    source: str


@dataclass(frozen=True)
class DeviceType:
    """Rates are dense and in FLOP/s, 0 where the device has none. `scale_up_bytes_per_second` is what one device sends
    to the others of its node, in one direction, over links of the kind `scale_up_link` (a name of link_types())."""

    name: str
    memory_bytes: int
    memory_bytes_per_second: float
    bf16_flops: float
    fp16_flops: float
    fp8_flops: float
    tdp_watts: float
    scale_up_kind: str  # of SCALE_UP_KINDS: how a node of these is usually built
    scale_up_link: str
    scale_up_bytes_per_second: float
    pcie_generation: int
    source: str


def link_types() -> MappingProxyType[str, LinkType]:
    return _library()[0]


def devices() -> MappingProxyType[str, DeviceType]:
    """Device types by name, in the order of library.toml."""
    return _library()[1]


_FIELDS = {
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bytes_per_second",
    "bf16": "bf16_flops",
    "fp16": "fp16_flops",
    "fp8": "fp8_flops",
    "tdp": "tdp_watts",
    "scale_up_kind": "scale_up_kind",
    "scale_up_link": "scale_up_link",
    "scale_up_bandwidth": "scale_up_bytes_per_second",
    "pcie": "pcie_generation",
    "source": "source",
}


def device_keys(links: tuple[str, ...]) -> dict[str, Key]:
    """Of a device's table, in library.toml and in a cluster file."""
    pcie = Whole(OLDEST_PCIE, NEWEST_PCIE)
    return {
        "memory": Key(Amount(SIZE), "device memory", required=True),
        "memory_bandwidth": Key(Amount(BANDWIDTH), "bandwidth of the device memory", required=True),
        "bf16": Key(Amount(FLOPS), "dense rate in bf16; 0: it has none", otherwise="0"),
        "fp16": Key(Amount(FLOPS), "dense rate in fp16; 0: it has none", otherwise="0"),
        "fp8": Key(Amount(FLOPS), "dense rate in fp8; 0: it has none", otherwise="0"),
        "tdp": Key(Number(0, 1e6), "thermal design power in watts", otherwise="0"),
        "scale_up_kind": Key(Choice(SCALE_UP_KINDS), "how a node of these is usually built", otherwise="pcie"),
        "scale_up_link": Key(
            Known("link_type", links), "kind of link to the other devices of a node", otherwise="PCIe of its generation"
        ),
        "scale_up_bandwidth": Key(
            Amount(BANDWIDTH), "to all others of the node together, one direction", otherwise="that of the link"
        ),
        "pcie": Key(pcie, "PCIe generation, 16 lanes", required=True),
        "source": Key(Name(), "where the figures are from", otherwise="cluster file"),
    }


def device_type(name: str, values: Values, links: Mapping[str, LinkType], like: DeviceType | None = None) -> DeviceType:
    """From a table of device_keys(); what it leaves out is as in `like`."""
    said = {_FIELDS[key]: value for key, value in values.items() if key in _FIELDS and value is not None}
    plain = {"memory_bytes": int, "pcie_generation": int}
    said = {key: value if isinstance(value, str) else plain.get(key, float)(value) for key, value in said.items()}
    if like:
        return replace(like, name=name, **said)
    link = said.get("scale_up_link", f"PCIe{said['pcie_generation']}")
    nothing = {"bf16_flops": 0.0, "fp16_flops": 0.0, "fp8_flops": 0.0, "tdp_watts": 0.0, "source": "cluster file"}
    nothing |= {"scale_up_kind": "pcie", "scale_up_bytes_per_second": links[link].bytes_per_second}
    return DeviceType(name=name, **nothing | {"scale_up_link": link} | said)


@functools.cache
def _library() -> tuple[MappingProxyType[str, LinkType], MappingProxyType[str, DeviceType]]:
    file = resources.files("prismllm.cluster") / "library.toml"
    text = file.read_text(encoding="utf-8")
    tables, place = tomllib.loads(text), Place(str(file), lines_of(text))
    link_keys = Table({
        "bandwidth": Key(Amount(BANDWIDTH), "one direction", required=True),
        "delay": Key(Amount(DURATION), "one way", required=True),
        "source": Key(Name(), "where the figures are from", required=True),
    })  # fmt: skip
    links = {}
    for name, table in tables["link"].items():
        values = link_keys.read(table, place / "link" / name)
        links[name] = LinkType(name, float(values["bandwidth"]), int(values["delay"]), values["source"])
    form = Table(device_keys(tuple(links)))
    read = {name: form.read(table, place / "device" / name) for name, table in tables["device"].items()}
    found = {name: device_type(name, values, links) for name, values in read.items()}
    return MappingProxyType(links), MappingProxyType(found)
