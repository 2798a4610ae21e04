"""Traces in Python: built, written, read, summarised, compared."""

import gc
import json
import struct
import threading

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import small_traces
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import MS, Recording, build, data_parallel, message_pair

from prismllm import _graph
from prismllm.trace import diff, info, load


@st.composite
def jobs(draw):
    """Jobs of 1 to 4 ranks that compute, reduce in the world or in a group of their parity, and pass messages on."""
    world = draw(st.integers(1, 4))
    steps = draw(st.lists(st.tuples(st.sampled_from(["compute", "world", "parity", "ring"]), st.integers(0, 2**40)),
                          max_size=12))  # fmt: skip
    recordings = []
    for rank in range(world):
        same = [r for r in range(world) if r % 2 == rank % 2]
        r = Recording(rank, [("world", list(range(world))), (f"parity{rank % 2}", same)])
        for what, amount in steps:
            if what == "compute":
                r.compute(amount % 1000, name=draw(st.sampled_from(["", "forward", "vorwärts", "前向"])))
                r.hold(amount, amount + rank)
            elif what == "ring" and world > 1:
                for op, peer in (("send", (rank + 1) % world), ("recv", (rank - 1) % world)):
                    r.wait(*r.issue(op, 0, amount, r.now + 5, peer=peer), r.now + 5)
            else:
                r.mark()
                r.wait(*r.issue("all_reduce", int(what == "parity"), amount, r.now + 7), r.now + 7)
        recordings.append(r)
    return build(recordings, metadata={"steps": len(steps)})


def columns_of(trace):
    return {name: column.copy() for name, column in trace.graph.columns().items()}


@settings(max_examples=60)
@given(jobs())
def test_any_job_comes_back_from_its_file(tmp_path_factory, trace):
    path = tmp_path_factory.mktemp("trace") / "job.prism"
    trace.write(path)
    again = load(path, check=True)
    assert diff(trace, again, timing=True) == (True, None)
    assert info(trace) == info(again)
    assert again.metadata == trace.metadata
    for name, column in columns_of(trace).items():
        np.testing.assert_array_equal(again.graph.columns()[name], column)


@settings(max_examples=60)
@given(jobs(), st.data())
def test_damaged_files_are_errors_or_sound(tmp_path_factory, trace, data):
    path = tmp_path_factory.mktemp("trace") / "job.prism"
    trace.write(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) - 1, len(content) // 2]))])
    try:
        damaged = load(path, check=True)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        info(damaged)
        assert diff(damaged, damaged, timing=True) == (True, None)


def test_the_safetensors_package_opens_a_trace(tmp_path):
    trace = data_parallel([10, 10, 12], iterations=2)
    trace.write(tmp_path / "job.prism")
    with safetensors.safe_open(tmp_path / "job.prism", "np") as file:
        header = json.loads(file.metadata()["prism"])
    assert header["world_size"] == 3
    assert header["groups"] == ["default_pg"]
    stored = safetensors.numpy.load_file(tmp_path / "job.prism")
    ours = trace.graph.columns()
    assert stored.keys() == ours.keys()
    for name, column in ours.items():
        assert stored[name].dtype == column.dtype
        np.testing.assert_array_equal(stored[name], column)


def test_columns_are_the_mapped_file_itself_and_outlive_the_trace(tmp_path):
    data_parallel([10, 20]).write(tmp_path / "job.prism")
    trace = load(tmp_path / "job.prism")
    start, again = trace.rank(1).start_ns, trace.graph.timing(1)[0]
    assert np.shares_memory(start, again)
    assert np.shares_memory(start, trace.graph.columns()["start_ns"])
    with pytest.raises(ValueError, match="read-only"):
        start[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        start.setflags(write=True)
    expected = start.tolist()
    del trace, again
    gc.collect()
    assert start.tolist() == expected


def test_ranks_that_do_the_same_share_a_class_and_its_columns():
    trace = data_parallel([10, 20, 30])
    assert trace.class_count == 1
    assert np.shares_memory(trace.rank(0).node_kind, trace.rank(2).node_kind)
    # compute and issue, 1 ms, then 2 ms of transfer once the slowest has come: rank 0 waits 20 ms longer
    assert trace.rank(0).duration_ns[trace.rank(0).is_kind("wait")].tolist() == [22 * MS] * 3
    assert trace.rank(2).duration_ns[trace.rank(2).is_kind("wait")].tolist() == [2 * MS] * 3


def test_a_rank_knows_its_groups_peers_lanes_names_and_memory():
    trace = message_pair()
    receiver = trace.rank(1)
    assert receiver.lanes == ["main"]
    assert [(group.name, group.members.tolist()) for group in receiver.groups] == [("default_pg", [0, 1])]
    assert receiver.peers[receiver.comm_peer[receiver.is_op("recv")]].tolist() == [0, 0]
    assert data_parallel([5]).rank(0).name_of(0) == "forward"
    assert data_parallel([5]).rank(0).name_of(1) == ""
    assert data_parallel([5]).rank(0).memory.bytes.tolist() == [1000, 1001, 1002]
    with pytest.raises(AttributeError, match="node_color"):
        _ = receiver.node_color


def test_info_counts_a_collective_once_and_the_bytes_of_all_members():
    assert info(data_parallel([10, 10, 12], iterations=4, nbytes=100)) == {
        "ranks": 3,
        "classes": 1,
        "groups": 1,
        "nodes": 3 * 4 * 4,  # compute, issue, transfer, wait
        "collectives": {"all_reduce": {"count": 4, "bytes": 3 * 4 * 100}},
        "iterations": 4,
        "timed": True,
        "calibrated": False,
        "peak_memory_bytes": 2000 * 3 + 3,
    }
    messages = info(message_pair(iterations=2))
    assert messages["collectives"] == {"send": {"count": 2, "bytes": 128}, "recv": {"count": 2, "bytes": 128}}
    assert messages["classes"] == 2


def test_diff_says_rank_node_field_and_both_values():
    equal, first = diff(data_parallel([10, 10]), data_parallel([10, 10], nbytes=8192))
    assert not equal
    assert first == {"rank": 0, "node": 1, "field": "input_bytes", "a": "4096", "b": "8192"}
    assert diff(data_parallel([10, 10]), data_parallel([10, 11])) == (True, None)
    # Rank 0 waits 1 ms longer when rank 1 computes 1 ms longer; both transfer for 2 ms.
    later = diff(data_parallel([10, 10]), data_parallel([10, 11]), timing=True)[1]
    assert later == {"rank": 0, "node": 2, "field": "duration", "a": "2000000 ns", "b": "3000000 ns"}
    assert diff(data_parallel([10]), data_parallel([10, 10]))[1] == {
        "rank": None, "node": None, "field": "ranks", "a": "1", "b": "2"}  # fmt: skip


def test_unrecorded_ranks_are_named_when_asked_for():
    builder = _graph.Builder(2)
    r = Recording(1, [("world", [0, 1])])
    r.compute(5)
    builder.add(r.record())
    trace = small_traces.Trace(builder.finish())
    assert trace.ranks == [1]
    with pytest.raises(ValueError, match="rank 0 was not recorded"):
        trace.rank(0)
    with pytest.raises(IndexError, match="rank 2; accepted: 0 to 1"):
        trace.rank(2)


def test_errors_have_the_types_of_python(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        load(tmp_path / "absent.prism")
    (tmp_path / "text.prism").write_text("not a trace at all")
    with pytest.raises(ValueError, match=r"text\.prism: is this a \.prism or \.prismdata file\? Its header length is"):
        load(tmp_path / "text.prism")
    with pytest.raises(OSError, match="cannot write"):
        data_parallel([1]).write(tmp_path / "absent" / "job.prism")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": {"kind": ["compute", "sleep"]}}, r"nodes.kind\[1\] is 'sleep'"),
        ({"nodes": {"kind": [0], "lane": [0, 0]}}, "nodes.lane has 2 entries, another column 1"),
        ({"nodes": {"kind": [0], "lane": [70000]}}, r"nodes.lane\[0\] is 70000, out of the range"),
        ({"nodes": {"kind": [0], "colour": [1]}}, "nodes has no column 'colour'"),
        ({"nodes": {"kind": [9]}}, r"node_kind\[0\] is 9"),
        ({"node": {}}, "a record has no entry 'node'"),
        ({"rank": 5}, "rank 5: the rank is out of range; accepted: 0 to 0"),
    ],
)
def test_the_builder_refuses_wrong_records(change, message):
    with pytest.raises(ValueError, match=message):
        _graph.Builder(1).add({"rank": 0, "lanes": ["main"], **change})


def test_corruption_is_reported_at_first_use_of_the_rank(tmp_path):
    path = tmp_path / "job.prism"
    data_parallel([10, 20]).write(path)
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", content)
    begin = json.loads(content[8 : 8 + length])["duration_ns"]["data_offsets"][0]
    nodes = len(load(path).rank(0).duration_ns)
    struct.pack_into("<q", content, 8 + length + begin + 8 * nodes, -7)  # rank 1's first duration
    path.write_bytes(content)
    trace = load(path)
    assert len(trace.rank(0).duration_ns) == nodes
    with pytest.raises(ValueError, match=r"job\.prism: rank 1: duration_ns\[0\] is -7"):
        trace.rank(1)
    with pytest.raises(ValueError, match="rank 1"):
        load(path, check=True)


def test_fragments_of_a_run_merge_into_one_trace(tmp_path):
    whole = data_parallel([10, 20, 30], iterations=5)
    paths = []
    for rank in range(3):
        r = Recording(rank, [("default_pg", [0, 1, 2])])
        for i in range(5):
            end = (i + 1) * 33 * MS
            r.compute((rank + 1) * 10 * MS, name="forward" if i == 0 else "")
            r.hold(1000 * (rank + 1) + i, 2000 * (rank + 1) + i)
            r.wait(*r.issue("all_reduce", 0, 4096, end, MS), end)
        builder = _graph.Builder(3, timed=True)
        builder.add(r.record())
        paths.append(str(tmp_path / f"rank-{rank}.prism"))
        _graph.write(builder.finish(), paths[-1])
    merged = small_traces.Trace(_graph.merge(paths, 3, timed=True))
    assert diff(whole, merged, timing=True) == (True, None)  # the iterations are found, not given


def test_threads_share_a_trace(tmp_path):
    data_parallel([1] * 8, iterations=200).write(tmp_path / "job.prism")
    trace = load(tmp_path / "job.prism")
    sums = []

    def total():
        sums.append(sum(int(trace.graph.timing(rank)[1].sum()) for rank in range(8)))

    threads = [threading.Thread(target=total) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    # compute 1, issue 1, transfer 2, wait 2 ms an iteration
    assert sums == [8 * 200 * 6 * MS] * 4
