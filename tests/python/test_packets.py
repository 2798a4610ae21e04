"""The network of packets: prism-ns3 beside arithmetic and the flow level."""

import json

import numpy as np
import pytest
from packets import PROGRAM, commands, needs_ns3
from small_traces import data_parallel

from prismllm import _simulate, simulate
from prismllm.cluster import load
from prismllm.replay import NetworkOptions, replay

# Bytes of a packet on a link, and of the data in it.
PACKET, DATA = 9002, 8948
EFFICIENCY = DATA / PACKET
MIB = 1 << 20


def arrivals(topology, source, destination, size, at=None) -> np.ndarray:
    """Seconds; all sent at 0 unless told."""
    count = len(source)
    at = np.zeros(count, dtype=np.int64) if at is None else np.array(at, dtype=np.int64)
    ends = (np.array(one, dtype=np.int32) for one in (source, destination))
    return _simulate.messages(topology, "ns3", at, *ends, np.full(count, size, dtype=np.int64), PROGRAM) / 1e12


def on_link(size: int) -> int:
    """Bytes of a message's packets."""
    return size + -(-size // DATA) * (PACKET - DATA)


@needs_ns3
def test_a_transfer_over_one_link_takes_its_packets_over_its_rate():
    """100 MiB at 100 Gb/s: 8.439 ms, as ns-3's own socket examples find it."""
    pair = _simulate.Topology(
        vertices=2, link_from=[0, 1], link_to=[1, 0], bytes_per_second=[12.5e9] * 2, latency_ps=[3_000_000] * 2,
        line_bytes_per_second=[12.5e9] * 2, burst_bytes=[0, 0], endpoint=[0, 1], nic=[], vertex_host=[], host=[],
        host_message_ps=[], host_operation_ps=[], host_bytes_per_second=[], host_processors=[], queue_bytes=0,
        spread="balanced")  # fmt: skip
    (took,) = arrivals(pair, [0], [1], 100 * MIB)
    assert took == pytest.approx(on_link(100 * MIB) / 12.5e9 + 3e-6, abs=1e-9)
    assert took == pytest.approx(8.439e-3, rel=1e-3)


@needs_ns3
def test_two_transfers_on_one_link_take_twice_as_long_and_are_as_fast():
    one = on_link(10 * MIB) / 50e9
    for source, destination in (([0, 1], [2, 2]), ([0, 0], [1, 2])):
        both = arrivals(simulate.one_switch(3, 50e9, 1e-6), source, destination, 10 * MIB)
        assert both.max() == pytest.approx(2 * one, rel=0.02)
        assert both.min() > 1.95 * one


@needs_ns3
@pytest.mark.parametrize("senders", [8, 32])
def test_many_to_one_fill_the_link_of_the_receiver(senders):
    """Windows shrink by marks; no packet is lost, so nobody waits for a timeout."""
    took = arrivals(simulate.one_switch(senders + 1, 50e9, 1e-6), range(1, senders + 1), [0] * senders, MIB)
    whole = senders * on_link(MIB) / 50e9
    assert whole < took.max() < 1.01 * whole + 2e-6


@needs_ns3
def test_messages_without_bytes_to_oneself_and_through_busy_hosts():
    took = arrivals(simulate.one_switch(2, 50e9, 1e-6), [0, 1], [1, 1], 0, at=[7, 9])
    assert took == pytest.approx([1e-6 + 7e-12, 9e-12], abs=5e-9)
    hosts = _simulate.Topology(
        vertices=4, link_from=[0, 3, 1, 3, 2, 3], link_to=[3, 0, 3, 1, 3, 2], bytes_per_second=[1e9] * 6,
        latency_ps=[0] * 6, line_bytes_per_second=[1e9] * 6, burst_bytes=[0] * 6, endpoint=[0, 1, 2], nic=[],
        vertex_host=[], host=[0, 0, 1], host_message_ps=[100_000_000, 30_000_000], host_operation_ps=[],
        host_bytes_per_second=[], host_processors=[], queue_bytes=0, spread="balanced")  # fmt: skip
    # Both senders are on host 0: they leave at 100 and 200 us; 1,054 bytes pass two links in about 2 us.
    assert arrivals(hosts, [0, 1], [2, 2], 1000) == pytest.approx([132.1e-6, 232.1e-6], abs=0.2e-6)


@needs_ns3
@pytest.mark.parametrize(("ranks", "rate", "latency_s"),
                         [(8, 12.5e9, 10e-6), (8, 50e9, 1e-6), (16, 50e9, 1e-6), (64, 50e9, 1e-6)])  # fmt: skip
def test_rings_take_what_the_flow_level_says_of_links_with_the_packets_efficiency(ranks, rate, latency_s):
    packets = simulate.collective("all_reduce", ranks, ranks * MIB, bandwidth=rate, latency_s=latency_s, network="ns3")
    flows = simulate.collective("all_reduce", ranks, ranks * MIB, bandwidth=rate * EFFICIENCY, latency_s=latency_s)
    assert flows.time_s < packets.time_s < 1.03 * flows.time_s
    assert packets.flows == flows.flows == 2 * (ranks - 1) * ranks
    # Each message's packets and their acknowledgements over two links, and what opens a connection.
    assert packets.packets == pytest.approx(packets.flows * 2 * 2 * -(-MIB // DATA), rel=0.01)


@needs_ns3
@pytest.mark.parametrize(("op", "algorithm"), [("all_to_all", "direct"), ("all_to_all", "pairwise"),
                                               ("all_reduce", "halving_doubling"), ("broadcast", "tree"),
                                               ("barrier", "")])  # fmt: skip
def test_other_collectives_are_near_the_flow_level_where_links_are_shared_evenly(op, algorithm):
    packets = simulate.collective(op, 8, 8 * MIB, algorithm=algorithm, network="ns3")
    flows = simulate.collective(op, 8, 8 * MIB, algorithm=algorithm, bandwidth=50e9 * EFFICIENCY)
    assert flows.time_s <= packets.time_s < 1.03 * flows.time_s


@needs_ns3
def test_a_ring_over_nodes_whose_file_states_the_packets_efficiency(repository, tmp_path):
    """Through NVLink, PCIe and network cards, over the routes that the flow level takes."""
    text = (repository / "examples" / "clusters" / "dgx_h100_pod.toml").read_text()
    text = text.replace('host_message_time = "2 us"\n', "")  # which would hide what links do
    took = {}
    for network, efficiency in (("ns3", 1), ("flow", EFFICIENCY)):
        file = tmp_path / f"{network}.toml"
        file.write_text(text.replace("0.85", str(efficiency)).replace("0.95", str(efficiency)))
        topology = simulate.topology_of(load(file))
        took[network] = simulate.collective("all_reduce", 16, 16 * MIB, topology=topology, network=network).time_s
    assert took["flow"] < took["ns3"] < 1.05 * took["flow"]


@needs_ns3
def test_the_command_gives_the_same_twice(run_prism):
    command = ("simulate", "collective", "all_reduce", "--ranks", 4, "--bytes", "4M", "--network", "ns3", "--json", "-")
    first, second = (run_prism(*command) for _ in range(2))
    assert first.returncode == 0, first.stderr
    results = [json.loads(one.stdout) for one in (first, second)]
    for one in results:
        assert one.pop("wall_s") > 0
    assert results[0] == results[1]
    assert set(results[0]) == {"time_s", "flows", "events", "packets", "algorithm_bandwidth", "bus_bandwidth"}
    assert results[0]["events"] > results[0]["packets"] > 0
    assert "packets    " in first.stderr


@needs_ns3
def test_a_trace_replays_on_packets_as_on_flows():
    trace = data_parallel([5, 3, 4, 4], nbytes=4_000_000, transfer_ms=2)
    packets = replay(trace, network=NetworkOptions(simulate.one_switch(4, 1e9, 1e-6), "ns3"))
    flows = replay(trace, network=NetworkOptions(simulate.one_switch(4, 1e9 * EFFICIENCY, 1e-6)))
    for one, other in zip(packets.iterations, flows.iterations, strict=True):
        assert other.time_s < one.time_s < other.time_s + 0.03 * 0.006
    links = [(link.name, link.bytes) for link in sorted(packets.network.links, key=lambda link: link.link)]
    assert links == [(link.name, link.bytes) for link in sorted(flows.network.links, key=lambda link: link.link)]
    assert all(0.018 < link.busy_s < 0.019 for link in packets.network.links)


@needs_ns3
def test_the_command_replays_a_trace_on_packets(run_prism, repository, tmp_path):
    results = {}
    for network in ("ns3", "flow"):
        _, (*command, _) = commands(tmp_path, repository)
        done = run_prism(*command, network, "--json", "-")
        assert done.returncode == 0, done.stderr
        results[network] = json.loads(done.stdout)
    took = {network: one["iterations"][-1]["time_s"] for network, one in results.items()}
    assert took["ns3"] == pytest.approx(took["flow"], rel=0.05) and took["ns3"] != took["flow"]
    assert results["ns3"]["network"]["network"] == "ns3"
