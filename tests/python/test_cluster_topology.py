"""Topology files of SimAI and of HPCC's ns-3 code."""

import networkx
import numpy as np
import pytest
from clusters import link, network, route

from prismllm import cluster
from prismllm.cluster.topology_graph import joined


def rails(servers=2, gpus=2, spines=2, gpu_type="H20"):
    """As SimAI's generator writes a rail-optimised network: GPUs, an NVSwitch per server, rail switches, spines."""
    devices = servers * gpus
    nvswitches, rail = range(devices, devices + servers), range(devices + servers, devices + servers + gpus)
    top = range(rail.stop, rail.stop + spines)
    cables = []
    for gpu in range(devices):
        cables.append(f"{gpu} {nvswitches[gpu // gpus]} 2880Gbps 0.000025ms 0")
        cables.append(f"{gpu} {rail[gpu % gpus]} 200Gbps 0.0005ms 0")
    cables += [f"{one} {other} 400Gbps 0.0005ms 0" for one in rail for other in top]
    header = f"{top.stop} {gpus} {servers} {gpus + spines} {len(cables)} {gpu_type}"
    return "\n".join([header, " ".join(map(str, range(devices, top.stop))) + " ", *cables]) + "\n"


TEXT = rails()


@pytest.fixture
def load(tmp_path):
    def load(text, name="rails.topo"):
        (tmp_path / name).write_text(text)
        return cluster.load(tmp_path / name) if name.endswith(".topo") else cluster.import_topology(tmp_path / name)

    return load


def test_a_simai_topology_is_a_cluster(load):
    found = load(rails(4, 8, 4))
    g = found.graph()
    assert (found.name, found.ranks, found.devices, found.device_of(31).name) == ("rails.topo", 32, 32, "H20")
    assert (g.vertices, g.links) == (32 + 4 + 8 + 4, 2 * (32 * 2 + 8 * 4))
    assert g.endpoint.tolist() == list(range(32)) and g.host.tolist() == [gpu // 8 for gpu in range(32)]
    assert g.nic.tolist() == [-1] * 32 and g.host_message_ps.tolist() == [0] * 4
    assert len(set(g.vertex_name)) == g.vertices and len(set(g.link_name)) == g.links
    assert route(g, 3, 19) == ["gpu3", "switch39", "gpu19"]  # both are number 3 of their servers
    assert [int(g.vertex_host[vertex]) for vertex in (0, 31, 32, 35, 36)] == [0, 3, 0, 3, -1]


def test_amounts_are_ns3s(load):
    g = load(TEXT).graph()
    up, out = link(g, "gpu1", "nvswitch4"), link(g, "gpu1", "switch7")
    assert (g.bytes_per_second[up], g.latency_ps[up]) == (360e9, 25_000)
    assert (g.bytes_per_second[out], g.latency_ps[out]) == (25e9, 500_000)
    said = TEXT.replace("0 4 2880Gbps 0.000025ms 0\n", "0 4 8e9 1e-6 0.25\n")
    g = load(said).graph()
    assert (g.bytes_per_second[0], g.latency_ps[0]) == (0.75e9, 1_000_000)
    assert np.array_equal(g.line_bytes_per_second, g.bytes_per_second) and not g.burst_bytes.any()


def test_any_name_can_be_imported_and_hpccs_header_is_read(load):
    below = "0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 4 1GB/s 1us 0\n"
    found = load(f"5 2 5\n3 4\n{below}\n# twice\n3 4 100Gbps 1us 0\n4 3 100Gbps 1us 0\n", "two_racks.txt")
    g = found.graph()
    assert (found.ranks, found.device_of(0), g.host.tolist()) == (3, None, [0, 1, 2])
    assert [name for name in g.link_name if name.startswith("switch3 -> switch4")] == [
        "switch3 -> switch4 #1",
        "switch3 -> switch4 #2",
    ]
    assert g.bytes_per_second[link(g, "gpu2", "switch4")] == 1e9


def test_switches_may_have_any_numbers_and_devices_come_first(load):
    text = "4 2 1 1 4 NONE\n0\n2\n1 0 8Gbps 1us 0\n3 0 8Gbps 1us 0\n1 2 8Gbps 1us 0\n3 2 8Gbps 1us 0\n"
    g = load(text).graph()
    assert list(g.vertex_name) == ["gpu1", "gpu3", "nvswitch0", "switch2"]
    assert g.link_name[0] == "gpu1 -> nvswitch0" and g.vertex_host.tolist() == [0, 0, 0, -1]


def test_an_nvswitch_of_several_servers_is_in_none(load):
    text = "5 2 1 0 4 GB200\n4\n0 4 8Gbps 1us 0\n1 4 8Gbps 1us 0\n2 4 8Gbps 1us 0\n3 4 8Gbps 1us 0\n"
    assert load(text).graph().vertex_host.tolist() == [0, 0, 1, 1, -1]


@pytest.mark.parametrize("given", ["A100", "a800", "H100", "H800", "H20", "Ascend910B", "A100-40GB"])
def test_device_types_are_known_by_the_simulators_names(load, given):
    expected = {"A100": "A100-80GB", "a800": "A800", "H100": "H100-SXM", "Ascend910B": "Ascend-910B"}
    assert load(rails(gpu_type=given)).device_of(0).name == expected.get(given, given)


@pytest.mark.parametrize(("old", "new", "says"), [
    (TEXT, "", "1: the file ends; accepted: a header of 3 or 6 fields"),
    ("10 2 2 4 12 H20", "10 2 2 4 12", "1: the header has 5 fields; accepted: 3 (vertices, switches, cables) or 6 "
     "(vertices, GPUs of a server, NVSwitches, switches, cables, GPU type)"),
    ("10 2 2 4 12 H20", "ten 2 2 4 12 H20", '1: vertices = "ten"; accepted: a whole number from 1 to 8388608'),
    ("10 2 2 4 12 H20", "10 2 2 8 12 H20", '1: switches = "8"; accepted: a whole number from 0 to 7'),
    ("10 2 2 4 12 H20", "10 3 2 4 12 H20", "1: GPUs of a server = 3; accepted: a divisor of the 4 devices"),
    ("10 2 2 4 12 H20", "10 2 2 4 99999999999 H20",
     '1: cables = "99999999999"; accepted: a whole number from 0 to 33554432'),
    ("10 2 2 4 12 H20", "8000000 2 2 4 12 H20", "1: the file has 7999994 devices; accepted: at most 4194304"),
    ("4 5 6 7 8 9 ", "4 5 6 7 8 8 ", "2: switch 8 is named twice; accepted: 6 different numbers"),
    ("4 5 6 7 8 9 ", "4 5 6 7 8 10 ", '2: switch = "10"; accepted: a whole number from 0 to 9'),
    ("4 5 6 7 8 9 ", "3 4 5 6 7 8 9 ", "2: 7 switches are named; accepted: 6"),
    ("4 5 6 7 8 9 ", "4 5 6 7 8", '3: switch 4 is named twice; accepted: 6 different numbers'),
    ("0 4 2880Gbps 0.000025ms 0", "0 4 2880Gbps 0.000025ms",
     "3: the line has 4 fields; accepted: 5 (two ends, bandwidth, delay, error rate)"),
    ("0 4 2880Gbps 0.000025ms 0", "0 10 2880Gbps 0.000025ms 0",
     '3: end = "10"; accepted: a whole number from 0 to 9'),
    ("0 4 2880Gbps 0.000025ms 0", "4 4 2880Gbps 0.000025ms 0",
     "3: the cable joins 4 to itself; accepted: two different ends"),
    ("0 4 2880Gbps 0.000025ms 0", "0 4 2880Gb 0.000025ms 0",
     '3: bandwidth = "2880Gb"; accepted: such as 400Gbps, or a number of bits per second'),
    ("0 4 2880Gbps 0.000025ms 0", "0 4 2880Gbps 0.000025min 0",
     '3: delay = "0.000025min"; accepted: such as 0.0005ms, or a number of seconds'),
    ("0 4 2880Gbps 0.000025ms 0", "0 4 2880Gbps 0.000025ms 1",
     '3: error rate = "1"; accepted: a number from 0, below 1'),
    ("7 9 400Gbps 0.0005ms 0\n", "", "13: the file ends; accepted: 12 cables; there are 11"),
    ("7 9 400Gbps 0.0005ms 0\n", "7 9 400Gbps 0.0005ms 0\n\n7 9 400Gbps 0.0005ms 0\n",
     '16: "7 9 400Gbps 0.0005ms 0" follows the last cable; accepted: 12 cables, as the header says'),
])  # fmt: skip
def test_a_mistake_is_said_in_one_line(load, tmp_path, old, new, says):
    assert TEXT.count(old) == 1
    with pytest.raises(cluster.ClusterError) as caught:
        load(TEXT.replace(old, new))
    assert str(caught.value) == f"{tmp_path / 'rails.topo'}:{says}"


def test_an_unknown_device_type_is_said_with_the_nearest(load):
    with pytest.raises(cluster.ClusterError, match='1: GPU type = "H1000"; nearest: H100; accepted: A100, '):
        load(rails(gpu_type="H1000"))


def test_devices_that_no_way_joins_are_refused(load):
    with pytest.raises(
        cluster.ClusterError, match="6: no way leads from 0 to 2; accepted: devices that are all joined"
    ):
        load("6 2 2 0 4 H100\n4 5\n0 4 8Gbps 1us 0\n1 4 8Gbps 1us 0\n2 5 8Gbps 1us 0\n3 5 8Gbps 1us 0\n")


@pytest.mark.parametrize("seed", range(20))
def test_joined_parts_have_one_label_each(seed):
    draw = np.random.default_rng(seed)
    ends = draw.integers(0, 60, (draw.integers(1, 60), 2))
    label = joined(60, ends)
    made = networkx.Graph(ends.tolist())
    made.add_nodes_from(range(60))
    parts = [{int(label[vertex]) for vertex in part} for part in networkx.connected_components(made)]
    assert all(len(part) == 1 for part in parts) and len(set.union(*parts)) == len(parts)


def test_a_long_chain_takes_few_rounds():
    chain = np.stack([np.arange(99_999), np.arange(1, 100_000)], axis=1)
    assert not joined(100_000, np.random.default_rng(1).permutation(chain)).any()


def test_every_two_devices_are_joined(load):
    net = network(load(rails(3, 4, 1)).graph())
    assert networkx.is_strongly_connected(net)


def test_a_single_device_is_a_cluster(load):
    g = load("1 1 0 0 0 NONE\n").graph()
    assert (g.vertices, g.links, list(g.vertex_name)) == (1, 0, ["gpu0"])
