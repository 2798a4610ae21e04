"""Collectives on networks, from the command line and from Python: figures that others have found, and errors."""

import json

import pytest

from prismllm import simulate
from prismllm.cluster import load


def test_the_command_gives_simgrids_figure(run_prism, tmp_path):
    done = run_prism("simulate", "collective", "all_reduce", "--ranks", 8, "--bytes", "1M", "--bandwidth", "50e9",
                     "--latency", "1e-6", "--json", "-")  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["time_s"] == pytest.approx(50.70016e-6, rel=1e-9)
    assert result["flows"] == 8 * 14
    assert result["bus_bandwidth"] == pytest.approx((1 << 20) / 50.70016e-6 * 2 * 7 / 8)
    told = run_prism("simulate", "collective", "all_reduce", "--ranks", 8, "--bytes", "1M")  # these are the defaults
    assert "time       50.7 µs" in told.stdout and "messages   112" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["all_reduce", "--bytes", "1M"], "--ranks is missing; accepted: the number of ranks, or a --cluster"),
        (["all_reduce", "--ranks", 4], "--bytes"),
        (["all_reduce", "--ranks", 4, "--bytes", "0"], "'0' is not a size"),
        (["allreduce", "--ranks", 4, "--bytes", 8], "operation 'allreduce' is not known"),
        (["send", "--ranks", 4, "--bytes", 8], "send is no collective"),
        (["all_to_all", "--ranks", 4, "--bytes", 8, "--algorithm", "ring"],
         "no algorithm 'ring' for all_to_all; accepted: direct, pairwise"),
        (["broadcast", "--ranks", 4, "--bytes", 8, "--root", 4], "root 4; accepted: 0 to 3"),
        (["all_reduce", "--ranks", 4, "--bytes", 8, "--bandwidth", "-1"], "bandwidth -1; accepted: 0.001 to 1e+18"),
        (["all_reduce", "--ranks", 4, "--bytes", 8, "--latency", "nan"], "latency nan; accepted: 0 to 1"),
        (["all_reduce", "--ranks", 6, "--bytes", 8, "--algorithm", "hierarchical", "--per-node", 4],
         "6 members with 4 a node; accepted: a whole number of nodes"),
        (["all_reduce", "--ranks", 4, "--bytes", 8, "--network", "ns2"], "'ns2' is not one of"),
        (["all_reduce", "--bytes", 8, "--cluster", "c.toml", "--latency", 1], "--cluster says what the links are"),
        (["all_reduce", "--bytes", 8, "--cluster", "none.toml"], "none.toml"),
        (["all_reduce", "--bytes", 8, "--cluster", "bad.toml"], "bad.toml"),
        (["all_reduce", "--bytes", 8, "--ranks", 65, "--cluster", "c.toml"],
         "a collective of 65 members on a network of 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_error(run_prism, repository, tmp_path, arguments, says):
    (tmp_path / "c.toml").write_text((repository / "examples" / "clusters" / "laptops.toml").read_text())
    (tmp_path / "bad.toml").write_text("name = 'x'\nnodes = 3\n")
    done = run_prism("simulate", "collective", *arguments)
    assert done.returncode == 2, done.stderr
    assert says in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


def test_rings_on_a_pod_of_nodes_are_held_up_by_its_network_cards(repository):
    """A ring over all ranks leaves each node by one card; by nodes, every rank has its own."""
    pod = load(repository / "examples" / "clusters" / "dgx_h100_pod.toml")
    topology, bytes_ = simulate.topology_of(pod), 1 << 30
    per_node = simulate.ranks_per_node(pod.graph())
    assert per_node == 8
    graph = pod.graph()
    slowest = {name: graph.bytes_per_second[number] for number, name in enumerate(graph.link_name) if ".nic" in name}
    card = min(slowest.values())
    flat = simulate.collective("all_reduce", topology.endpoints, bytes_, topology=topology)
    assert flat.time_s >= 2 * (256 - 1) / 256 * bytes_ / card
    nodes = simulate.collective("all_reduce", topology.endpoints, bytes_, topology=topology, per_node=per_node,
                                algorithm="hierarchical")  # fmt: skip
    assert 2 * 31 / 32 * bytes_ / 8 / card < nodes.time_s < flat.time_s / 4


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "gather"])
def test_more_bandwidth_is_never_slower_and_sharing_never_faster(op):
    times = [simulate.collective(op, 12, 3 << 20, bandwidth=rate, network="closed").time_s for rate in (1e9, 2e9, 8e9)]
    assert times == sorted(times, reverse=True)
    assert simulate.collective(op, 12, 3 << 20, bandwidth=1e9).time_s >= times[0]


def test_the_same_twice(repository):
    cluster = load(repository / "examples" / "clusters" / "a100_fat_tree.toml")
    runs = [simulate.collective("all_to_all", 64, 64 << 20, topology=simulate.topology_of(cluster)) for _ in range(2)]
    assert runs[0].time_s == runs[1].time_s and runs[0].events == runs[1].events
