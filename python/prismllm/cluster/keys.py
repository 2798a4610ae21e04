"""Every key of a cluster file: its form, whether it is required, its default, and what it is. The JSON Schema is made
from this, and docs/clusters.md lists it."""

from __future__ import annotations

import functools

from prismllm.cluster.forms import Amount, Choice, Either, Known, Many, Name, Number, Ranges, Whole
from prismllm.cluster.library import device_keys, devices, link_types
from prismllm.cluster.quantities import BANDWIDTH, DURATION, SIZE
from prismllm.cluster.tables import ByKind, Key, Table

MOST_DEVICES = 2**22
MOST_CABLES = 2**25  # a cable is two directed links of 44 bytes each: 3 GB
MOST_PER_NODE = 1024
_COUNT = Whole(1, MOST_DEVICES)
_SOME = Whole(1, 65536)


def _link_keys() -> dict[str, Key]:
    known = Known("link_type", tuple(link_types()))
    return {
        "type": Key(known, "kind of link"),
        "bandwidth": Key(Amount(BANDWIDTH), "sustained, in one direction", otherwise="that of the type"),
        "delay": Key(Amount(DURATION), "one way, with the processing at the far end", otherwise="that of the type"),
        "efficiency": Key(Number(0, 1), "share of the bandwidth that the protocol leaves to data", otherwise="1"),
        "burst": Key(Amount(SIZE), "bytes that pass at line_rate before the bandwidth holds", otherwise="no burst"),
        "line_rate": Key(Amount(BANDWIDTH), "bandwidth until the burst is used up; goes with burst"),
    }  # fmt: skip


def _link() -> Table:
    return Table(_link_keys(), title="link")


def _cable_keys() -> dict[str, Key]:
    return _link_keys() | {"cables": Key(Whole(1, 1024), "parallel cables between two switches", 1)}


def _device() -> dict[str, Key]:
    like = Known("device_type", tuple(devices()))
    own = {
        "name": Key(Name(), "the device type's name", required=True),
        "like": Key(like, "device type that has the figures not given here", otherwise="none"),
    }
    return own | {
        name: Key(key.form, key.text, otherwise=key.otherwise or "needed without like")
        for name, key in device_keys(tuple(link_types())).items()
    }


@functools.cache
def pcie_form() -> Table:
    link = _link_keys()
    return Table({
        "switches": Key(Whole(0, MOST_PER_NODE), "PCIe switches; 0: devices and NICs are at the root complex", 0),
        "roots": Key(Whole(1, 16), "root complexes (sockets), each joined to each other", 1),
        **link,
        "uplink": Key(_link(), "switch to root complex", otherwise="as the other PCIe links"),
        "root_link": Key(_link(), "between root complexes", otherwise="as the other PCIe links"),
    }, title="pcie")  # fmt: skip


def _node() -> dict[str, Key]:
    link = _link_keys()
    sharing = Many(Many(Whole(0, MOST_PER_NODE - 1)))
    nic = {
        "count": Key(Whole(1, MOST_PER_NODE), "NICs of a node", otherwise="as many as devices has, or 1"),
        "attach": Key(Choice(("switch", "root")), "at the PCIe switch of its first device, or at the root complex",
                      "switch"),
        "devices": Key(sharing,
                       "for each NIC the devices near it; they use the first of theirs", otherwise="equal shares"),
        **link,
    }  # fmt: skip
    scale_up = {"nvswitch": link, "nvlink_mesh": link, "pcie": {}}
    device = Either(dict, Table(_device(), title="device"), Known("device_type", tuple(devices())))
    return {
        "name": Key(Name(), "of this kind of node", otherwise="the device type's name"),
        "count": Key(_COUNT, "nodes of this kind", 1),
        "device": Key(device, "device type: its name, or a table", required=True),
        "devices": Key(Whole(1, MOST_PER_NODE), "devices per node", required=True),
        "host_message_time": Key(Amount(DURATION), "time per message on the host's processors", 0),
        "scale_up": Key(
            ByKind("scale_up", scale_up, "how they are joined"),
            "network of the devices inside a node",
            otherwise="that of the device type",
        ),
        "pcie": Key(pcie_form(), "the PCIe tree of a node", otherwise="one root complex"),
        "nic": Key(Table(nic, title="nic"), "network cards", otherwise="none; needed where there is a fabric"),
    }


def _fabric() -> ByKind:
    cables, ratio = Table(_cable_keys(), title="cables"), Number(0, 1e6)
    above = "bandwidth of its links below, over that of its links above"
    fat_tree = {
        "nodes_per_tor": Key(_COUNT, "nodes under a top-of-rack switch", required=True),
        "tors_per_pod": Key(_COUNT, "top-of-rack switches of a pod", otherwise="all of them"),
        "aggregations": Key(_SOME, "aggregation switches of a pod, each joined to each of its ToRs", required=True),
        "cores": Key(Whole(0, 65536), "core switches, a multiple of aggregations; needed to join pods", 0),
        "oversubscription": Key(ratio, f"of a ToR: {above}", otherwise="1, or as uplink.bandwidth has it"),
        "core_oversubscription": Key(
            ratio, f"of an aggregation switch: {above}", otherwise="1, or as core_link.bandwidth has it"
        ),
        "uplink": Key(cables, "ToR to aggregation", required=True),
        "core_link": Key(cables, "aggregation to core", otherwise="needed with cores"),
    }
    rail = {
        "nodes_per_group": Key(_COUNT, "nodes that share rail switches", otherwise="all of them"),
        "spines": Key(Whole(0, 65536), "switches above, each joined to each rail switch; 0: rails meet in nodes only",
                      required=True),
        "oversubscription": Key(ratio, f"of a rail switch: {above}", otherwise="1, or as uplink.bandwidth has it"),
        "uplink": Key(cables, "rail switch to spine", otherwise="needed with spines"),
    }  # fmt: skip
    mesh = {"link": Key(_link(), "between NICs of equal number", otherwise="as the NICs")}
    kinds = {"switch": {}, "fat_tree": fat_tree, "rail": rail, "mesh": mesh}
    return ByKind("fabric", kinds, "what joins the nodes")


@functools.cache
def file_form() -> Table:
    nodes = Key(Many(Table(_node(), title="node")), "kinds of node, numbered in the order of the file")
    fabric = Key(_fabric(), "what joins the nodes", otherwise="none; needed where there is more than one")
    word = Name(strict=True)
    site = Table({"name": Key(word, "begins the names of its switches", required=True),
                  "node": Key(nodes.form, nodes.text, required=True), "fabric": fabric})  # fmt: skip
    ends = Many(word)
    long_link = _cable_keys() | {"between": Key(ends, "names of two sites", required=True)}
    placement = {
        "ranks": Key(_COUNT, "how many ranks there are", otherwise="one for each device"),
        "order": Key(
            Choice(("node", "round_robin")),
            "node by node, or one device of each node in turn",
            otherwise="node",
        ),
        "devices": Key(
            Either(str, Ranges(), Many(Whole(0, MOST_DEVICES - 1))),
            'in place of order, the device of each rank: a list, or text such as "0-7,16-23"',
        ),
    }
    processors = {
        "count": Key(Whole(1, 4096), "how many there are", required=True),
        "message_time": Key(Amount(DURATION), "of a message at its sender, and again at its receiver", required=True),
        "operation_time": Key(Amount(DURATION), "of an operation at each member, before its messages", 0),
        "copy": Key(
            Amount(BANDWIDTH),
            "at which one of them copies what an all_gather of Gloo brings together",
            otherwise="at once",
        ),
        "queue": Key(
            Amount(SIZE), "bytes that a node has in its queue while it sends: what it says then waits behind them", 0
        ),
    }
    return Table({
        "name": Key(Name(), "the cluster's name", required=True),
        "node": Key(nodes.form, nodes.text, otherwise="needed without site"),
        "fabric": fabric,
        "site": Key(Many(site), "several sites, in place of node and fabric", otherwise="one site"),
        "site_link": Key(Many(Table(long_link)), "long links between sites", otherwise="none"),
        "placement": Key(Table(placement), "which rank is on which device", otherwise="rank r on device r"),
        "processors": Key(Table(processors), "of the one machine that stands for all nodes, as a testbed's does",
                          otherwise="nodes have their own"),
    })  # fmt: skip
