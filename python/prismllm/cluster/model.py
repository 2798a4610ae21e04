"""A cluster as its file describes it, checked: plain values, in bytes, bytes per second and picoseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prismllm.cluster.library import DeviceType


@dataclass(frozen=True)
class Link:
    """One direction of a cable: t picoseconds after its first byte it has let through
    efficiency * min(line_bytes_per_second * t, burst_bytes + bytes_per_second * t), each delay_ps later.

    bytes_per_second is 0 where it follows from an oversubscription."""

    bytes_per_second: float
    delay_ps: int
    efficiency: float = 1.0
    line_bytes_per_second: float = 0.0  # 0: there is no burst
    burst_bytes: int = 0

    def at(self, bytes_per_second: float) -> Link:
        return replace(self, bytes_per_second=bytes_per_second)


@dataclass(frozen=True)
class Pcie:
    """`switches` spread evenly over `roots` root complexes, devices evenly over the switches, both in order."""

    switches: int
    roots: int
    link: Link
    uplink: Link
    root_link: Link


@dataclass(frozen=True)
class Nics:
    """`users[i]`: the devices that use NIC i. `at_switch`: it is at the PCIe switch of its first device."""

    users: tuple[tuple[int, ...], ...]
    at_switch: bool
    link: Link

    @property
    def count(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class NodeKind:
    """`count` nodes of `devices` devices each."""

    name: str
    count: int
    device: DeviceType
    devices: int
    host_message_ps: int
    scale_up: str  # of library.SCALE_UP_KINDS
    scale_up_link: Link | None  # None for "pcie"
    pcie: Pcie
    nics: Nics | None


@dataclass(frozen=True)
class Switch:
    """One non-blocking switch."""


@dataclass(frozen=True)
class FatTree:
    """Aggregation switch a of each pod is joined to cores a * c to (a + 1) * c - 1, c = cores / aggregations. An
    oversubscription of 0 says that the link's own bandwidth counts."""

    nodes_per_tor: int
    tors_per_pod: int
    aggregations: int
    cores: int
    oversubscription: float
    core_oversubscription: float
    uplink: Link
    uplink_cables: int
    core_link: Link | None
    core_cables: int


@dataclass(frozen=True)
class Rail:
    """NIC i of every node of a group is joined to rail switch i of the group, rail switches to all spines."""

    nodes_per_group: int
    spines: int
    oversubscription: float
    uplink: Link | None
    uplink_cables: int


@dataclass(frozen=True)
class Mesh:
    """A cable between the NICs of equal number of every two nodes."""

    link: Link


@dataclass(frozen=True)
class Site:
    """`name` is "" where the cluster is one site; `fabric` is None for a single node."""

    name: str
    kinds: tuple[NodeKind, ...]
    fabric: Switch | FatTree | Rail | Mesh | None

    @property
    def nodes(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @property
    def rails(self) -> int:
        return max(kind.nics.count if kind.nics else 0 for kind in self.kinds)


@dataclass(frozen=True)
class Processors:
    """Of one machine that stands for all nodes: a message needs one of them for `message_ps` at either end, an
    operation for `operation_ps` at each member; copying goes at `copy_bytes_per_second`, 0: takes no time. What a
    node says while it sends waits behind `queue_bytes` of that."""

    count: int
    message_ps: int
    operation_ps: int
    copy_bytes_per_second: float = 0.0
    queue_bytes: int = 0


@dataclass(frozen=True)
class SiteLink:
    """Cables from the top switches of one site, in turn, to those of another: `first` and `second` count sites."""

    first: int
    second: int
    cables: int
    link: Link
