"""A kind of node."""

from __future__ import annotations

from prismllm.cluster.errors import Place
from prismllm.cluster.keys import MOST_PER_NODE, pcie_form
from prismllm.cluster.library import DeviceType, device_keys, device_type, devices, link_types
from prismllm.cluster.model import Link, Nics, NodeKind, Pcie
from prismllm.cluster.nodes import spread
from prismllm.cluster.read_link import read_link
from prismllm.cluster.tables import Values


def read_node(values: Values) -> NodeKind:
    device = _device(values)
    many = values["devices"]
    scale_up, link = _scale_up(values, device)
    pcie = _pcie(values["pcie"] or pcie_form().read({}, values.place / "pcie"), device)
    nics = _nics(values["nic"], many) if values["nic"] else None
    name = values["name"] or device.name
    return NodeKind(name, values["count"], device, many, round(values["host_message_time"]), scale_up, link, pcie, nics)


def _device(values: Values) -> DeviceType:
    given = values["device"]
    if isinstance(given, str):
        return devices()[given]
    like = devices()[given["like"]] if given["like"] else None
    for name, key in device_keys(()).items():
        if like is None and key.required and given[name] is None:
            raise (given.place / name).missing(f"{key.form.accepted}; or like, a device type that has it")
    return device_type(given["name"], given, link_types(), like)


def _scale_up(values: Values, device: DeviceType) -> tuple[str, Link | None]:
    given, many = values["scale_up"], values["devices"]
    kind = given["kind"] if given else device.scale_up_kind
    if kind == "pcie":
        return kind, None
    default = None
    if device.scale_up_kind != "pcie":
        # Of a mesh the links to all others share what the device has.
        peers = max(1, many - 1) if kind == "nvlink_mesh" else 1
        own = device.scale_up_bytes_per_second / peers
        default = Link(own, link_types()[device.scale_up_link].delay_ps)
    return kind, read_link(given, default) if given else default


def _pcie(values: Values, device: DeviceType) -> Pcie:
    known = link_types()[f"PCIe{device.pcie_generation}"]
    link = read_link(values, Link(known.bytes_per_second, known.delay_ps))
    uplink, between = (
        read_link(values[key], Link(link.bytes_per_second, link.delay_ps, link.efficiency)) if values[key] else link
        for key in ("uplink", "root_link")
    )
    return Pcie(values["switches"], values["roots"], link, uplink, between)


def _nics(values: Values, many: int) -> Nics:
    link = read_link(values)
    if values["devices"] is None:
        count = values["count"] or 1
        users = [[] for _ in range(count)]
        for device, nic in enumerate(spread(many, count).tolist() if count <= many else []):
            users[nic].append(device)
        if count > many:
            users = [[device] for device in spread(count, many).tolist()]
    else:
        users = _sharing(values["devices"], values["count"], many, values.place)
    return Nics(tuple(map(tuple, users)), values["attach"] == "switch", link)


def _sharing(users: list[list[int]], count: int | None, many: int, place: Place) -> list[list[int]]:
    at = place / "devices"
    if (count is not None and count != len(users)) or len(users) > MOST_PER_NODE:
        raise at.error(f"{at} has {len(users)} NICs; accepted: {count or f'at most {MOST_PER_NODE}'}, as count says")
    for nic, some in enumerate(users):
        for index, device in enumerate(some):
            if device >= many:
                raise (at / nic / index).wrong(device, f"a device of the node, 0 to {many - 1}")
    for device in range(many):
        if not any(device in some for some in users):
            raise at.error(f"{at} has no NIC for device {device}; accepted: each of 0 to {many - 1} at least once")
    return users
