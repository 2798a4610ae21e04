"""Tables and frames of a timeline, and the analysis in words, against arithmetic (small_traces.py)."""

import json
import subprocess
import sys

import numpy as np
import pytest
from small_traces import MS, Recording, build, data_parallel, message_pair

import prismllm
from prismllm.replay import as_recorded, replay


@pytest.fixture
def trace(tmp_path):
    """Ranks compute 10, 14 and 12 ms, issue for 1 and meet in an all_reduce of 2 ms: 17 ms an iteration."""
    path = tmp_path / "job.prism"
    data_parallel([10, 14, 12], iterations=3, metadata={"clock_domain": "one"}).write(path)
    return prismllm.load(path)


def test_spans_are_the_columns_of_the_file_with_names(trace):
    table = trace.tables.spans
    assert table.column_names == ["rank", "lane", "kind", "name", "op", "group", "iteration", "node", "start_s",
                                  "duration_s", "start_ns", "duration_ns"]  # fmt: skip
    assert table.num_rows == 3 * 3 * 4
    spans = trace.frames.spans
    compute = spans[(spans["rank"] == 1) & (spans.kind == "compute")]
    assert compute.duration_s.tolist() == [0.014] * 3 and compute.iteration.tolist() == [0, 1, 2]
    assert compute.name.tolist()[0] == "forward" and compute.name.isna().tolist() == [False, True, True]
    transfers = spans[spans.kind == "transfer"]
    assert set(transfers.op) == {"all_reduce"} and set(transfers.group) == {"default_pg"}
    assert spans.groupby("rank").duration_ns.sum().tolist() == [3 * (10 + 1 + 6 + 6) * MS, 3 * (14 + 1 + 2 + 2) * MS,
                                                               3 * (12 + 1 + 4 + 4) * MS]  # fmt: skip


def test_times_and_kinds_of_spans_are_not_copied(trace):
    done = replay(trace)
    chunk = done.tables.spans.column("start_ns").chunk(2)
    assert chunk.buffers()[1].address == done.timeline(2)[0].ctypes.data
    kind = done.tables.spans.column("kind").chunk(0).indices
    assert kind.buffers()[1].address == trace.rank(0).node_kind.ctypes.data


def test_who_came_late_and_what_the_others_waited(trace):
    collectives = trace.frames.collectives
    assert collectives.late_rank.tolist() == [1, 1, 1]
    assert collectives.late_by_s.tolist() == pytest.approx([0.002] * 3)  # rank 2 came 2 ms earlier
    assert collectives.waited_s.tolist() == pytest.approx([0.004 + 0.002] * 3)
    assert collectives.iteration.tolist() == [0, 1, 2] and collectives.members.tolist() == [3] * 3
    assert collectives.start_s.tolist() == pytest.approx([0.015, 0.032, 0.049])
    communications = trace.frames.communications
    assert communications[communications["rank"] == 0].waited_s.tolist() == pytest.approx([0.004] * 3)
    assert communications[communications["rank"] == 1].waited_s.tolist() == [0] * 3
    (late, *_), _ = as_recorded(trace).late()
    assert late.what == "all_reduce 0 of group 'default_pg'" and late.late_rank == 1


def test_the_critical_path_of_each_iteration_sums_to_its_time(trace):
    path = trace.frames.critical_path
    assert path.groupby("iteration").duration_s.sum().tolist() == pytest.approx([0.017] * 3)
    first = path[path.iteration == 0]
    assert first["rank"].tolist() == [1, 1, 0] and first.kind.tolist() == ["compute", "issue", "transfer"]
    assert first.what.tolist() == ["forward", *["all_reduce 0 of group 'default_pg'"] * 2]
    assert first.duration_s.tolist() == pytest.approx([0.014, 0.001, 0.002])


def test_a_message_is_a_hop_between_ranks_with_its_name():
    hops = replay(message_pair(iterations=1)).path.of(0)
    assert [(hop.rank, hop.kind) for hop in hops] == [(0, "compute"), (0, "transfer"), (0, "compute")]
    assert hops[1].what == "send 0 to rank 1" and sum(hop.duration_s for hop in hops) == pytest.approx(0.005)


def test_the_receiver_of_a_chain_idles_in_a_bubble():
    ranks = replay(message_pair(iterations=1)).ranks
    # Rank 1 waits 3 ms for the message of rank 0; both are done at 5 ms.
    assert [one.bubble_s for one in ranks] == pytest.approx([0, 0.003])


def test_memory_peaks_where_it_does(trace):
    ranks = trace.frames.ranks
    assert ranks.peak_memory_bytes.tolist() == [2002, 4002, 6002]
    assert ranks.peak_memory_at_s.tolist() == pytest.approx([2 * 0.017 + own for own in (0.010, 0.014, 0.012)])
    memory = trace.frames.memory
    assert memory.groupby("rank").peak_bytes.max().tolist() == [2002, 4002, 6002]


def test_a_trace_without_times_has_the_tables_of_its_replay():
    bare = data_parallel([10, 14], iterations=2, timed=False)
    assert as_recorded(bare).notes[0].startswith("untimed graph")
    iterations = bare.frames.iterations
    assert iterations.time_s.tolist() == pytest.approx([one.time_s for one in replay(bare).iterations])
    assert np.allclose(bare.frames.critical_path.groupby("iteration").duration_s.sum(), iterations.time_s)


def test_a_trace_of_ranks_that_do_not_communicate_has_tables_too():
    alone = Recording(0, [("default_pg", [0])])
    alone.compute(5 * MS, name="work")
    frames = build([alone]).frames
    assert len(frames.communications) == 0 and len(frames.collectives) == 0 and len(frames.memory) == 0
    assert frames.critical_path.what.tolist() == ["work"] and frames.spans.iteration.isna().all()
    with pytest.raises(AttributeError, match="no frame 'span'; there are spans, communications"):
        _ = frames.span


def test_the_json_is_bounded_and_counts_what_it_leaves_out(monkeypatch):
    from prismllm.replay import offline

    monkeypatch.setattr(offline, "_PATH_IN_JSON", 2)
    monkeypatch.setattr(offline, "_LATE_IN_JSON", 1)
    summary = replay(data_parallel([10, 14, 12], iterations=3)).to_json()
    assert summary["critical_path_iteration"] == 1  # the middle one of three that are equal
    assert [hop["duration_s"] for hop in summary["critical_path"]] == pytest.approx([0.014, 0.002])
    assert summary["critical_path_rest"] == {"hops": 1, "duration_s": pytest.approx(0.001)}
    assert len(summary["late"]) == 1
    assert summary["late_rest"] == {"collectives": 2, "waited_s": pytest.approx(0.012)}
    json.dumps(summary)


def test_without_pyarrow_one_error_says_what_to_install(tmp_path):
    data_parallel([1], iterations=1).write(tmp_path / "job.prism")
    program = """
import sys
sys.modules["pyarrow"] = None
import prismllm
trace = prismllm.load(sys.argv[1])
try:
    trace.tables
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "job.prism"], capture_output=True, text=True)
    assert "pip install 'prismllm[frames]'" in done.stdout, done.stderr
