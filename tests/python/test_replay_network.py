"""Replays on networks: what the links of a job carry, and how long it takes there."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_traces import MS, Recording, build, data_parallel, message_pair

from prismllm.cli import prism
from prismllm.replay import NetworkOptions, replay, retimed
from prismllm.simulate import one_switch

PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
pairs = [dist.new_group([r, r + 1]) for r in range(0, world, 2)]
gradient, parts = torch.ones(1 << 16), torch.ones(world << 12)
for step in range(3):
    work = dist.all_reduce(gradient, async_op=True)
    dist.all_reduce(parts, group=pairs[rank // 2])
    dist.broadcast(parts, src=step % world)
    if rank % 2 == 0:
        dist.send(parts, rank + 1)
    else:
        dist.recv(parts, rank - 1)
    out = torch.empty(world << 12)
    dist.all_to_all_single(out, parts) if dist.get_backend() != "gloo" else dist.all_gather_into_tensor(
        torch.empty(world * len(parts)), parts)
    work.wait()
    dist.barrier()
"""


def times(done):
    return [done.timeline(rank.rank) for rank in done.ranks]


def test_an_all_reduce_of_a_trace_takes_its_ring_on_the_network():
    trace = data_parallel([5, 3, 4, 4], nbytes=4_000_000, transfer_ms=2)
    done = replay(trace, network=NetworkOptions(one_switch(4, 1e9, 1e-6)))
    # 6 steps of 1 MB and 1 us, in the place of the 2 ms that were recorded.
    assert [one.time_s for one in done.iterations] == pytest.approx([0.005 + 0.001 + 0.006_006] * 3)
    assert done.ranks[0].exposed_comm_s == pytest.approx(3 * 0.006_006)
    assert {link.bytes for link in done.network.links} == {3 * 6_000_000} and len(done.network.links) == 8
    assert done.network.links[0].name == "endpoint 0 -> vertex 4"
    assert done.network.links[0].busy_s == pytest.approx(0.018)
    assert done.network.links[0].utilisation == pytest.approx(0.018 / done.critical_path_s)
    tree = replay(trace, network=NetworkOptions(one_switch(4, 1e9, 1e-6), algorithms={"all_reduce": "direct"}))
    assert tree.iterations[0].time_s == pytest.approx(0.005 + 0.001 + 0.012_001)


def test_two_messages_at_once_share_what_their_routes_have_in_common():
    recordings = [Recording(rank, [("default_pg", [0, 1, 2])]) for rank in range(3)]
    for rank in (0, 1):
        recordings[rank].wait(*recordings[rank].issue("send", 0, 1_000_000, 0, peer=2), 0)
    works = [recordings[2].issue("recv", 0, 1_000_000, 0, peer=rank) for rank in (0, 1)]
    for work in works:
        recordings[2].wait(*work, 0)
    trace, network = build(recordings), one_switch(3, 1e9, 0)
    done = replay(trace, network=NetworkOptions(network, flows=True, bins=100))
    assert done.critical_path_s == pytest.approx(0.002)
    use = done.network
    assert set(use.route(0, 2)) & set(use.route(1, 2)) == {5}
    flows = use.flows
    assert (flows["source"].tolist(), flows["destination"].tolist()) == ([0, 1], [2, 2])
    assert flows["end_ps"].tolist() == [2 * MS * 1000] * 2 and flows["comm"].tolist() == [0, 0]
    over_time = use.bytes_over_time(5)
    assert 100 <= len(over_time) <= 201 and over_time.sum() == pytest.approx(2_000_000)
    np.testing.assert_allclose(over_time[:99] / use.bin_s, 1e9)
    alone = replay(trace, network=NetworkOptions(network, network="closed"))
    assert alone.critical_path_s == pytest.approx(0.001) and alone.network.flows == {}


def test_a_captured_job_is_never_slower_on_a_faster_network(captured):
    trace = captured(PROGRAM)[0]
    before = np.inf
    for bandwidth, latency in ((1e7, 1e-4), (1e8, 1e-4), (1e9, 1e-5), (1e10, 0)):
        closed = replay(trace, network=NetworkOptions(one_switch(4, bandwidth, latency), network="closed"))
        flow = replay(trace, network=NetworkOptions(one_switch(4, bandwidth, latency)))
        assert closed.critical_path_s <= before
        assert flow.critical_path_s >= closed.critical_path_s * (1 - 1e-6)
        before = closed.critical_path_s


def test_a_replay_on_a_network_is_the_same_every_time_and_replays_to_itself(captured):
    trace = captured(PROGRAM)[0]
    options = NetworkOptions(one_switch(4, 1e8, 1e-5), flows=True)
    first, second = replay(trace, network=options), replay(trace, network=options)
    for a, b in zip(times(first), times(second), strict=True):
        np.testing.assert_array_equal(a, b)
    for name, column in first.network.flows.items():
        np.testing.assert_array_equal(column, second.network.flows[name])
    # Its times are a trace like any other.
    assert retimed(trace, network=options).graph.world_size == 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topology": one_switch(1, 1e9, 0)}, "1 endpoints, none for rank 1; accepted: one for each of 2 ranks"),
        ({"placement": [0, 7]}, "rank 1 at endpoint 7; accepted: 0 to 1"),
        ({"placement": [0]}, "endpoints of 1 ranks; accepted: one for each of 2 ranks"),
        ({"network": "tcp"}, "network 'tcp'; accepted: closed, flow"),
        ({"algorithms": {"all_reduc": "ring"}}, "'all_reduc' is not known"),
        ({"algorithms": {"all_reduce": "rng"}}, "no algorithm 'rng' for all_reduce"),
        ({"bins": -1}, "-1 bins"),
        ({"per_node": -1}, "-1 ranks a node"),
    ],
)
def test_a_network_that_cannot_carry_the_job_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        replay(message_pair(), network=NetworkOptions(**{"topology": one_switch(2, 1e9, 0)} | options))


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A cluster file, read by a stand-in: so many devices on one switch of 1 GB/s."""

    def load(path):
        devices = int(Path(path).read_text())
        if devices < 1:
            raise ValueError("no devices")
        up = np.repeat(np.arange(devices), 2)
        ends = np.stack([up, np.full(2 * devices, devices)])
        ends[:, 1::2] = ends[::-1, 1::2]
        names = [f"nic {i} {way}" for i in range(devices) for way in ("up", "down")]
        graph = types.SimpleNamespace(
            vertices=devices + 1, link_from=ends[0], link_to=ends[1], bytes_per_second=np.full(2 * devices, 1e9),
            latency_ps=np.zeros(2 * devices, int), line_bytes_per_second=np.full(2 * devices, 1e9),
            burst_bytes=np.zeros(2 * devices, int), endpoint=np.arange(devices), host=np.arange(devices),
            host_message_ps=np.zeros(devices, int), processors=None, nic=np.zeros(0, int),
            vertex_host=np.zeros(0, int), link_name=names,
        )  # fmt: skip
        return types.SimpleNamespace(graph=lambda: graph, devices_per_node=2)

    monkeypatch.setitem(sys.modules, "prismllm.cluster", types.SimpleNamespace(load=load))

    def write(devices):
        path = tmp_path / "cluster.toml"
        path.write_text(str(devices))
        return str(path)

    return write


def test_prism_replay_prints_the_busiest_links_of_a_cluster(cluster, tmp_path):
    trace = str(tmp_path / "job.prism")
    data_parallel([5, 3, 4, 4], nbytes=4_000_000).write(trace)
    done = CliRunner().invoke(prism, ["replay", trace, "--comm", cluster(4), "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert "nic 0 up: 17.2 MiB, busy 18 ms, used 50.0%" in done.output
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["network"]["network"] == "flow"
    assert summary["network"]["links"][0].keys() == {"name", "link", "bytes", "busy_s", "utilisation"}
    assert summary["iterations"][0]["time_s"] == pytest.approx(0.012)
    arguments = ["replay", trace, "--comm", cluster(4), "--network", "closed", "--algorithm", "all_reduce=direct"]
    done = CliRunner().invoke(prism, [*arguments, "--json", str(tmp_path / "out.json")])
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["iterations"][0]["time_s"] == pytest.approx(0.006 + 0.004)
    assert summary["network"]["network"] == "closed"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--comm", 2], "2 endpoints, none for rank 2"),
        (["--comm", 0], "no devices"),
        (["--comm", 4, "--algorithm", "all_reduce"], "accepted: OP=NAME"),
        (["--comm", 4, "--algorithm", "all_reduce=fast"], "no algorithm 'fast' for all_reduce"),
        (["--comm", 4, "--algorithm", "allreduce=ring"], "operation 'allreduce' is not known"),
        (["--network", "flow"], "--network is of a --comm cluster"),
    ],
)
def test_prism_replay_refuses_what_is_no_network_for_the_job(cluster, tmp_path, arguments, complaint):
    trace = str(tmp_path / "job.prism")
    data_parallel([5, 3, 4, 4]).write(trace)
    given = [cluster(a) if isinstance(a, int) else a for a in arguments]
    done = CliRunner().invoke(prism, ["replay", trace, *given])
    assert done.exit_code == 2 and complaint in done.output, done.output
