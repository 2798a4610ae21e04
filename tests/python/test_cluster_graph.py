"""Graphs of clusters, against arithmetic that textbooks and data sheets have."""

import itertools
import time

import networkx
import numpy as np
import pytest
from clusters import UPLINK, flow, graph, link, load_at, made, named, network, nodes, route
from hypothesis import given, settings
from hypothesis import strategies as st

from prismllm import cluster
from prismllm.cluster.cluster import cables

RATE = 100e9 / 8  # of clusters.NIC


def fat_tree(nodes_per_tor, aggregations, more="", uplink=UPLINK):
    return f"""[fabric]
        kind = "fat_tree"
        nodes_per_tor = {nodes_per_tor}
        aggregations = {aggregations}
        {uplink}
        {more}"""


def rail(spines, more="", uplink=UPLINK):
    return f'[fabric]\nkind = "rail"\nspines = {spines}\n{uplink}\n{more}'


# --- fat trees


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_fat_tree_of_k_port_switches_has_the_switches_and_cables_of_the_textbook(k):
    more = f'tors_per_pod = {k // 2}\ncores = {k * k // 4}\ncore_link = {{ delay = "1 us" }}'
    g = graph(nodes(k**3 // 4), fat_tree(k // 2, k // 2, more))
    switches = [named(g, name) for name in ("tor", "aggregation", "core")]
    assert [len(some) for some in switches] == [k * k // 2, k * k // 2, k * k // 4]
    of_switch = [name for name in g.link_name if "tor" in name or "core" in name]
    assert len(of_switch) == 2 * 3 * k**3 // 4
    ports = np.bincount(g.link_from, minlength=g.vertices)
    assert {int(ports[switch]) for some in switches for switch in some} == {k}
    among = [index for index, name in enumerate(g.link_name) if "aggregation" in name]
    assert set(g.bytes_per_second[among]) == {RATE}  # without oversubscription every port is like the NICs'


@pytest.mark.parametrize(("tor", "core"), [(1, 1), (2, 1), (1, 4), (2, 3)])
def test_bisection_is_what_the_oversubscriptions_leave(tor, core):
    ratios = f"oversubscription = {tor}\ncore_oversubscription = {core}"
    more = f'tors_per_pod = 2\ncores = 4\ncore_link = {{ delay = "1 us" }}\n{ratios}'
    g = graph(nodes(16), fat_tree(4, 2, more))
    every = g.endpoint.tolist()
    assert flow(g, every[:8], every[8:]) == pytest.approx(8 * RATE / (tor * core))  # pod 0 to pod 1
    assert flow(g, every[:4], every[4:8]) == pytest.approx(4 * RATE / tor)  # rack 0 to rack 1
    assert flow(g, every[:2], every[2:4]) == pytest.approx(2 * RATE)  # within a rack


def test_each_switch_is_oversubscribed_alike_also_where_the_last_rack_is_half_empty():
    nic = 'nic = { count = 2, bandwidth = "100 Gb/s", delay = "1 us" }'
    uplink = 'uplink = { delay = "1 us", cables = 3 }'
    g = graph(nodes(10, 2, nic), fat_tree(4, 2, "oversubscription = 2.5", uplink))
    tors = named(g, "tor")
    below, above = load_at(g, tors, named(g, "nic")), load_at(g, tors, named(g, "aggregation"))
    assert below.tolist() == [8 * RATE, 8 * RATE, 4 * RATE]
    assert below / above == pytest.approx([2.5] * 3)
    assert len([name for name in g.link_name if name.startswith("tor0 -> aggregation")]) == 2 * 3
    assert "tor0 -> aggregation1 #3" in list(g.link_name)


def test_an_uplink_may_have_a_bandwidth_of_its_own():
    g = graph(nodes(8), fat_tree(4, 2, uplink='uplink = { bandwidth = "25 GB/s", delay = "1 us", efficiency = 0.8 }'))
    assert g.bytes_per_second[link(g, "tor1", "aggregation0")] == pytest.approx(20e9)


# --- rails


def test_rails_join_equal_nics_of_all_nodes_through_one_switch():
    nic = 'nic = { count = 8, bandwidth = "400 Gb/s", delay = "1 us" }'
    g = graph(nodes(4, 8, nic), rail(2))
    for number in range(8):
        (switch,) = named(g, f"rail{number}")
        below = {g.vertex_name[v] for v in g.link_from[g.link_to == switch].tolist() if v < min(named(g, "rail"))}
        assert below == {f"node{node}.nic{number}" for node in range(4)}
    nic_of = {(int(host), index % 8): int(nic) for index, (host, nic) in enumerate(zip(g.host, g.nic, strict=True))}
    assert route(g, nic_of[0, 3], nic_of[2, 3], outside=True) == ["node0.nic3", "rail3", "node2.nic3"]
    across = route(g, nic_of[0, 3], nic_of[2, 4], outside=True)
    assert [across[0], across[1], across[3], across[4]] == ["node0.nic3", "rail3", "rail4", "node2.nic4"]
    assert across[2].startswith("spine")


def test_groups_have_rail_switches_of_their_own_and_spines_join_them():
    nic = 'nic = { count = 2, bandwidth = "100 Gb/s", delay = "1 us" }'
    g = graph(nodes(6, 2, nic), rail(3, "nodes_per_group = 2\noversubscription = 2"))
    assert [g.vertex_name[vertex] for vertex in named(g, "rail")] == [
        f"group{group}.rail{number}" for group in range(3) for number in range(2)
    ]
    rails = named(g, "rail")
    assert load_at(g, rails, named(g, "spine")) == pytest.approx(np.full(6, RATE))  # 2 NICs below, a half above
    every = g.endpoint.tolist()
    assert flow(g, every[:4], every[4:]) == pytest.approx(2 * RATE)


def test_kinds_with_unlike_nics_share_rails_and_no_switch_is_left_without_a_cable():
    eight = 'nic = { count = 4, bandwidth = "400 Gb/s", delay = "1 us" }'
    g = graph(nodes(2, 4, eight), nodes(4, 2), rail(1, "nodes_per_group = 2"))
    assert len(named(g, "rail")) == 4 + 1 + 1
    assert np.bincount(g.link_from, minlength=g.vertices).min() >= 1
    assert (g.bytes_per_second > 0).all()


def test_rails_without_spines_meet_in_the_nodes():
    nic = 'nic = { count = 2, bandwidth = "100 Gb/s", delay = "1 us" }'
    g = graph(nodes(2, 2, nic), rail(0, uplink=""))
    assert named(g, "spine") == []
    assert route(g, 0, 3)[-3:] == ["node1.nic0", "node1.root", "node1.gpu1"]


# --- inside nodes


def test_an_nvswitch_gives_each_device_its_whole_bandwidth():
    g = graph(nodes(1, 8, nic=""))
    assert g.bytes_per_second[link(g, "node0.gpu2", "node0.nvswitch")] == 300e9
    assert g.latency_ps[link(g, "node0.nvswitch", "node0.gpu5")] == 30660  # Xsim Table 5
    assert route(g, 0, 7) == ["node0.gpu0", "node0.nvswitch", "node0.gpu7"]


def test_a_full_mesh_divides_a_devices_bandwidth_among_the_others():
    g = graph(nodes(1, 4, nic="", more='scale_up = { kind = "nvlink_mesh" }'))
    direct = [name for name in g.link_name if name.count("gpu") == 2]
    assert len(direct) == 4 * 3
    assert g.bytes_per_second[link(g, "node0.gpu1", "node0.gpu3")] == 100e9
    mi300x = 'name = "m"\n[[node]]\ndevice = "MI300X"\ndevices = 8'
    g = cluster.loads(mi300x).graph()
    assert g.bytes_per_second[link(g, "node0.gpu0", "node0.gpu7")] == 64e9  # 128 GB/s in both directions


def test_a_nic_behind_its_devices_switch_is_two_hops_away_and_one_at_the_root_three():
    tree = "pcie = { switches = 2, roots = 2 }"
    nic = 'nic = { count = 2, bandwidth = "100 Gb/s", delay = "1 us"%s }'
    near, far = (graph(nodes(1, 4, nic % at, tree)) for at in ("", ', attach = "root"'))
    hops = ["node0.gpu2", "node0.pcie1", "node0.nic1"]
    assert route(near, 2, int(near.nic[2])) == hops
    assert route(far, 2, int(far.nic[2])) == [*hops[:2], "node0.root1", hops[2]]
    steps = [link(near, one, other) for one, other in itertools.pairwise(hops)]
    assert near.latency_ps[steps].tolist() == [287500, 287500]  # Xsim Table 5: 2 x 287.5 ns
    assert near.bytes_per_second[steps].tolist() == [32e9, 32e9]


def test_devices_share_nics_equally_or_as_the_file_says():
    nic = 'nic = { %s, bandwidth = "100 Gb/s", delay = "1 us" }'
    equal = graph(nodes(2, 4, nic % "count = 2"), '[fabric]\nkind = "switch"')
    assert [equal.vertex_name[vertex] for vertex in equal.nic[4:]] == ["node1.nic0"] * 2 + ["node1.nic1"] * 2
    said = graph(nodes(1, 4, nic % "devices = [[0, 3], [1], [2, 1]]"))
    assert [said.vertex_name[vertex][-1] for vertex in said.nic] == ["0", "1", "2", "0"]
    many = graph(nodes(1, 2, nic % "count = 4"))
    assert [many.vertex_name[vertex][-1] for vertex in many.nic] == ["0", "2"]


def test_a_node_of_one_device_without_nics_is_a_graph():
    g = graph(nodes(1, 1, nic=""))
    assert list(g.vertex_name) == ["node0.gpu0", "node0.root"] and g.nic.tolist() == [-1]


@pytest.mark.parametrize("device", sorted(cluster.devices()))
def test_devices_of_a_node_reach_each_other_by_their_own_network_before_pcie(device):
    tree = "pcie = { switches = 2, roots = 1 }"
    g = graph(nodes(1, 8, nic="", more=tree).replace("A100-40GB", device))
    between = {"nvswitch": ["node0.nvswitch"], "nvlink_mesh": [], "pcie": ["node0.pcie0"]}
    assert route(g, 0, 1)[1:-1] == between[cluster.devices()[device].scale_up_kind]


# --- links


def test_efficiency_counts_for_both_rates_of_a_burst_and_others_have_one_rate():
    burst = 'nic = { bandwidth = "6 Gb/s", line_rate = "10 Gb/s", burst = "32 MB", delay = "5 us", efficiency = 0.9 }'
    g = graph(nodes(2, nic=burst), '[fabric]\nkind = "mesh"')
    cable = link(g, "node0.nic0", "node1.nic0")
    assert g.bytes_per_second[cable] == pytest.approx(0.9 * 0.75e9)
    assert g.line_bytes_per_second[cable] == pytest.approx(0.9 * 1.25e9)
    assert g.burst_bytes[cable] == 32_000_000 and g.latency_ps[cable] == 5_000_000
    without = g.burst_bytes == 0
    assert without.sum() == g.links - 2
    assert np.array_equal(g.line_bytes_per_second[without], g.bytes_per_second[without])


def test_a_mesh_has_a_cable_for_every_two_nodes_and_each_nic():
    nic = 'nic = { count = 2, bandwidth = "100 Gb/s", delay = "1 us" }'
    g = graph(nodes(5, 2, nic), '[fabric]\nkind = "mesh"\nlink = { bandwidth = "10 Gb/s", delay = "3 us" }')
    between = [i for i, name in enumerate(g.link_name) if name.count("nic") == 2]
    assert len(between) == 2 * 2 * (5 * 4 // 2)
    assert set(g.bytes_per_second[between]) == {1.25e9}


# --- sites


def site(name, text, fabric):
    return f'[[site]]\nname = "{name}"\n' + text.replace("[[node]]", "[[site.node]]") + f"[site.fabric]\n{fabric}\n"


def long_link(one, other, more=""):
    return f'[[site_link]]\nbetween = ["{one}", "{other}"]\nbandwidth = "10 Gb/s"\ndelay = "2 ms"\n{more}'


def test_long_links_go_round_the_topmost_switches_and_bound_what_passes_between_sites():
    two_spines = f'kind = "rail"\nspines = 2\n{UPLINK}'
    g = graph(
        site("a", nodes(4), two_spines), site("b", nodes(4), 'kind = "switch"'), long_link("a", "b", "cables = 3")
    )
    long = [name for name in g.link_name if name.startswith("a.") and "b." in name]
    assert sorted(long) == ["a.spine0 -> b.switch #1", "a.spine0 -> b.switch #2", "a.spine1 -> b.switch"]
    every = g.endpoint.tolist()
    assert flow(g, every[:4], every[4:]) == pytest.approx(3 * 1.25e9)
    assert g.latency_ps[link(g, "b.switch", "a.spine1")] == 2_000_000_000


def test_sites_may_reach_each_other_through_a_third():
    sites = [site(name, nodes(1), 'kind = "switch"') for name in "abc"]
    g = graph(*sites, long_link("a", "b"), long_link("c", "b"))
    assert route(g, 0, 2)[3:-3] == ["a.switch", "b.switch", "c.switch"]
    assert [g.vertex_name[vertex] for vertex in g.endpoint] == ["node0.gpu0", "node1.gpu0", "node2.gpu0"]


# --- placement


@pytest.mark.parametrize(("placement", "devices"), [
    ("", [0, 1, 2, 3, 4, 5]),
    ("ranks = 4", [0, 1, 2, 3]),
    ('order = "round_robin"', [0, 2, 4, 1, 3, 5]),
    ('order = "round_robin"\nranks = 3', [0, 2, 4]),
    ("devices = [5, 0, 3]", [5, 0, 3]),
    ('devices = "4-5, 0-1"', [4, 5, 0, 1]),
])  # fmt: skip
def test_ranks_are_placed(placement, devices):
    g = graph(nodes(3, 2), '[fabric]\nkind = "switch"', f"[placement]\n{placement}")
    assert g.endpoint.tolist() == devices
    assert g.host.tolist() == [device // 2 for device in devices]


def test_ranks_of_mixed_kinds_have_their_own_devices_and_hosts():
    text = nodes(1, 2, more='host_message_time = "1.5 us"') + nodes(2, 1).replace("A100-40GB", "H100-SXM")
    made_of = made(text, '[fabric]\nkind = "switch"', '[placement]\norder = "round_robin"')
    assert [made_of.device_of(rank).name for rank in range(4)] == ["A100-40GB", "H100-SXM", "H100-SXM", "A100-40GB"]
    g = made_of.graph()
    assert g.host.tolist() == [0, 1, 2, 0] and g.host_message_ps.tolist() == [1_500_000, 0, 0]
    with pytest.raises(IndexError):
        made_of.device_of(4)


# --- what holds for every graph


@st.composite
def clusters_drawn(draw):
    def kind(most_nodes):
        devices, count = draw(st.integers(1, 4)), draw(st.integers(1, most_nodes))
        nic = f'nic = {{ count = {draw(st.integers(1, 5))}, bandwidth = "100 Gb/s", delay = "1 us" }}'
        scale = draw(st.sampled_from(["nvswitch", "nvlink_mesh", "pcie"]))
        tree = f"pcie = {{ switches = {draw(st.integers(0, 3))}, roots = {draw(st.integers(1, 3))} }}"
        return nodes(count, devices, nic, f'scale_up = {{ kind = "{scale}" }}\n{tree}')

    parts = [kind(4) for _ in range(draw(st.integers(1, 2)))]
    cores = draw(st.integers(1, 2))
    above = f'tors_per_pod = {draw(st.integers(1, 2))}\ncores = {2 * cores}\ncore_link = {{ delay = "1 us" }}'
    fabrics = [
        '[fabric]\nkind = "switch"',
        fat_tree(draw(st.integers(1, 3)), 2, above, 'uplink = { delay = "1 us", cables = 2 }'),
        rail(draw(st.integers(1, 3)), f"nodes_per_group = {draw(st.integers(1, 3))}"),
    ]
    return made(*parts, draw(st.sampled_from(fabrics)))


@settings(max_examples=60)
@given(clusters_drawn())
def test_any_two_devices_are_joined_with_no_device_between_them(cluster):
    g = cluster.graph()
    net = network(g)
    without = net.subgraph(range(g.devices, g.vertices))
    parts = networkx.connected_components(without.to_undirected())  # NVSwitches are parts of their own
    assert any(all(part & set(net[device]) for device in range(g.devices)) for part in parts)


@settings(max_examples=60)
@given(clusters_drawn())
def test_cables_are_pairs_of_links_vertices_and_links_have_names_of_their_own_and_nothing_is_left_over(cluster):
    g = cluster.graph()
    assert np.array_equal(g.link_from[::2], g.link_to[1::2]) and np.array_equal(g.link_to[::2], g.link_from[1::2])
    for column in (g.bytes_per_second, g.latency_ps, g.line_bytes_per_second, g.burst_bytes):
        assert np.array_equal(column[::2], column[1::2])
    assert len(set(g.vertex_name)) == g.vertices and len(set(g.link_name)) == g.links
    assert g.link_name[-2:] == [g.link_name[g.links - 2], g.link_name[-1]]
    counted = sum(cables(one) for one in cluster.sites)
    assert counted == g.links // 2 or (len(cluster.kinds) > 1 and counted >= g.links // 2)
    hosts = g.vertex_host
    assert (hosts[: g.devices] >= 0).all() and hosts.max() == len(g.host_message_ps) - 1
    assert [g.vertex_name[v].split(".")[0] for v in np.flatnonzero(hosts >= 0)] == [
        f"node{host}" for host in hosts[hosts >= 0]
    ]
    types = {g.link_from.dtype, g.link_to.dtype, g.endpoint.dtype, g.host.dtype, g.nic.dtype, g.vertex_host.dtype}
    assert types == {np.dtype(np.int32)}
    assert {g.latency_ps.dtype, g.burst_bytes.dtype, g.host_message_ps.dtype} == {np.dtype(np.int64)}


@settings(max_examples=20)
@given(clusters_drawn())
def test_two_graphs_of_a_cluster_are_equal(cluster):
    one, other = cluster.graph(), cluster.graph()
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(other, name)), name
    assert list(one.link_name) == list(other.link_name)


def test_65536_devices_take_seconds_and_some_tens_of_megabytes():
    nic = 'nic = { count = 8, type = "ConnectX-7" }'
    began = time.monotonic()
    g = graph(nodes(8192, 8, nic, "pcie = { switches = 4, roots = 2 }"), rail(32, "nodes_per_group = 32"))
    assert time.monotonic() - began < 10  # 0.2 s on an idle core
    assert g.devices == 65536
    assert sum(value.nbytes for value in vars(g).values() if isinstance(value, np.ndarray)) < 64 << 20
    assert g.link_name[g.links - 1] == "spine31 -> group255.rail7"
