"""Chrome traces: the schema that viewers demand, and counts that follow from the trace by arithmetic."""

import gzip
import itertools
import json
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import MS, Recording, build, data_parallel, message_pair

from prismllm.export import export_chrome


@pytest.fixture
def exported(tmp_path):
    def export(trace, name="out.json"):
        path = tmp_path / name
        count = export_chrome(trace, path)
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
        assert count == len(document["traceEvents"])
        return document["traceEvents"]

    return export


def of_phase(events, phases):
    return [e for e in events if e["ph"] in phases]


def check_schema(events):
    """What the trace event format demands of each phase."""
    demanded = {"X": {"pid", "tid", "ts", "dur", "name", "cat", "args"}, "M": {"pid", "name", "args"},
                "C": {"pid", "ts", "name", "args"}, "i": {"pid", "tid", "ts", "name", "s"},
                "s": {"pid", "tid", "ts", "id", "name", "cat"}, "t": {"pid", "tid", "ts", "id", "name", "cat"},
                "f": {"pid", "tid", "ts", "id", "name", "cat", "bp"}}  # fmt: skip
    for event in events:
        assert demanded[event["ph"]] <= event.keys(), event
        for key in ("ts", "dur"):
            assert event.get(key, 0) >= 0, event


def nanoseconds(us):
    """As Perfetto reads a number of microseconds."""
    return int(us * 1000.0)


def check_threads(events):
    """Perfetto takes thread 0 for the main thread, whose number is the process's; no other may have that."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "thread_name"}
    ranks = {e["pid"] for e in of_phase(events, "M")}
    assert {key for key, name in names.items() if name == "main"} == {(rank, rank) for rank in ranks}
    assert all(tid > 0 for (rank, tid), name in names.items() if name != "main")
    assert {(e["pid"], e["tid"]) for e in of_phase(events, "Xi")} <= names.keys()


def check_slices_do_not_overlap(events):
    """Slices of one thread that overlap in part are dropped by viewers."""
    threads = {}
    for e in of_phase(events, "X"):
        threads.setdefault((e["pid"], e["tid"]), []).append((nanoseconds(e["ts"]), nanoseconds(e["dur"])))
    for slices in threads.values():
        slices.sort()
        for (start, duration), (following, _) in itertools.pairwise(slices):
            assert start + duration <= following


def check_arrows_bind(events):
    """Every end of an arrow lies in a slice of its thread, and both have the name by which viewers pair them."""
    slices = {}
    for e in of_phase(events, "X"):
        slices.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for e in of_phase(events, "stf"):
        assert any(start <= e["ts"] <= end for start, end in slices[e["pid"], e["tid"]]), e
    named = {(e["id"], e["cat"], e["name"]) for e in of_phase(events, "stf")}
    assert len(named) == len({e["id"] for e in of_phase(events, "stf")})
    begun = set()
    for e in sorted(of_phase(events, "stf"), key=lambda e: e["ts"]):  # stable: of one time, in the file's order
        assert e["ph"] == "s" or e["id"] in begun, e
        begun.add(e["id"])


def test_each_node_is_one_slice_and_each_collective_one_arrow_through_its_members(exported):
    ranks, iterations = 4, 3
    events = exported(data_parallel([10, 14, 12, 13], iterations=iterations))
    check_schema(events), check_threads(events), check_slices_do_not_overlap(events), check_arrows_bind(events)
    counts = Counter(e["ph"] for e in events)
    assert counts["X"] == ranks * iterations * 4  # compute, issue, transfer, wait
    assert (counts["s"], counts["t"], counts["f"]) == (iterations, 2 * iterations, iterations)
    assert counts["i"] == ranks * iterations
    assert counts["C"] == 2 * ranks * iterations
    assert {e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "process_name"} == {
        f"rank {r}" for r in range(ranks)
    }


def test_times_are_microseconds_since_the_first_start_to_the_nanosecond(exported):
    rank = Recording(0, [("default_pg", [0])])
    rank.now = 5_000_000_123
    rank.compute(1_234_567)
    rank.compute(1)
    first, second = of_phase(exported(build([rank])), "X")
    assert (first["ts"], first["dur"]) == (0.0, 1234.567)
    assert (second["ts"], second["dur"]) == (1234.567, 0.001)


@given(st.lists(st.integers(1, 10**15), min_size=1, max_size=20))
def test_viewers_read_every_time_back_to_the_nanosecond(durations):
    rank = Recording(0, [("default_pg", [0])])
    for duration in durations:
        rank.compute(duration)
    with tempfile.TemporaryDirectory() as folder:
        export_chrome(build([rank]), f"{folder}/out.json")
        events = of_phase(json.loads(Path(folder, "out.json").read_text())["traceEvents"], "X")
    assert [nanoseconds(e["dur"]) for e in events] == durations
    assert [nanoseconds(e["ts"]) for e in events] == [sum(durations[:i]) for i in range(len(durations))]


def test_slices_carry_what_was_communicated(exported):
    events = exported(data_parallel([10, 14], nbytes=4096))
    transfer = next(e for e in of_phase(events, "X") if e["cat"] == "transfer")
    assert transfer["name"] == "all_reduce"
    assert transfer["args"].items() >= {"group": "default_pg", "seq": 0, "bytes": 4096, "dtype": "float32"}.items()
    assert {"forward", "compute"} == {e["name"] for e in of_phase(events, "X") if e["cat"] == "compute"}


def test_an_arrow_runs_from_each_send_to_its_receive_although_that_was_posted_first(exported):
    events = exported(message_pair(iterations=3))
    check_schema(events), check_arrows_bind(events)
    starts, ends = of_phase(events, "s"), of_phase(events, "f")
    assert [e["pid"] for e in starts] == [0] * 3 and [e["pid"] for e in ends] == [1] * 3
    assert sorted(e["id"] for e in starts) == sorted(e["id"] for e in ends)
    by_id = {e["id"]: e["ts"] for e in starts}
    assert all(e["ts"] >= by_id[e["id"]] for e in ends)
    received = [e["args"] for e in of_phase(events, "X") if e["name"] == "recv"]
    assert all(args["peer"] == 0 and args["tag"] == 7 for args in received)


def test_transfers_that_overlap_get_threads_of_their_own(exported):
    rank = Recording(0, [("data", [0])])
    pending = [rank.issue("all_reduce", 0, 4, end * MS) for end in (4, 6, 5)]
    rank.wait(*pending[0], 4 * MS)
    rank.issue("all_reduce", 0, 4, 7 * MS)
    events = exported(build([rank]))
    check_slices_do_not_overlap(events)
    names = [e["args"]["name"] for e in of_phase(events, "M") if e["name"] == "thread_name"]
    assert names == ["main", "transfers of group data", "transfers of group data (2)", "transfers of group data (3)"]


def test_names_of_programs_and_groups_cannot_break_the_document(exported):
    rank = Recording(0, [('a "group"\\\n</script>', [0])])
    rank.compute(MS, name='a "span"\\\n')
    rank.issue("barrier", 0, 0, MS)
    events = exported(build([rank], metadata={"program": ['"']}))
    assert any(e["name"] == 'a "span"\\\n' for e in of_phase(events, "X"))


def test_gz_holds_the_same_events_and_two_exports_the_same_bytes(exported, tmp_path):
    trace = data_parallel([10, 14])
    assert exported(trace) == exported(trace, "out.json.gz")
    first = (tmp_path / "out.json.gz").read_bytes()
    exported(trace, "out.json.gz")
    assert (tmp_path / "out.json.gz").read_bytes() == first


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prismllm.export.chrome._marks", full)
    with pytest.raises(OSError, match="No space left"):
        export_chrome(data_parallel([1, 2]), path)
    assert os.listdir(tmp_path) == ["out.json"] and path.read_text() == "old"


def test_a_rank_that_did_nothing_has_a_process_and_no_slices(exported):
    events = exported(build([Recording(0, [("default_pg", [0])])]))
    check_schema(events)
    assert {e["ph"] for e in events} == {"M"}
