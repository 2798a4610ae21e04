"""`prism calibrate`: one timeline from ranks that were timed one after the other, and the spread of an iteration."""

import dataclasses
import json
import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import MS, Recording, build, data_parallel, message_pair

import prismllm
from prismllm.analysis import with_times
from prismllm.calibrate import calibrate, realign, span_quantiles
from prismllm.replay import Links, NetworkOptions, replay
from prismllm.simulate import one_switch

CLUSTER = """
name = "two on a cable of 1 GB/s"
[[node]]
count = 2
device = "H100-SXM"
devices = 1
nic = { bandwidth = "8 Gb/s", delay = "0 ns", efficiency = 1.0 }
[fabric]
kind = "mesh"
"""
NOTHING = Links(latency_s=0, bytes_per_second=1e9)
KEYS = {"iteration_time_s", "uncalibrated_iteration_time_s", "iteration_time_of_medians_s", "busy_s", "samples",
        "seed", "warmup_iterations", "iterations", "comm", "notes"}  # fmt: skip


def timing(warmup=0, **more):
    return {"timing": {"method": "slices", "warmup_iterations": warmup, "slices": [[0], [1]]}} | more


def group_of(spans_ms, closed=True, clock=0, nbytes=0, warmup=0):
    """[ranks][iterations] ms: each rank computes its span, then all meet in an all-reduce; one slice for each rank,
    whose clock begins at `clock` (one for each rank) ns. A mark ends the last iteration where it is `closed`."""
    ranks = list(range(len(spans_ms)))
    recordings = []
    for rank, spans in enumerate(spans_ms):
        r = Recording(rank, [("default_pg", ranks)])
        r.now = clock[rank] if clock else 0
        for span in spans:
            r.mark()
            r.compute(round(span * MS))
            r.wait(*r.issue("all_reduce", 0, nbytes, r.now), r.now)
        if closed:
            r.mark()
            r.compute(0)
        recordings.append(r)
    return build(recordings, metadata=timing(warmup))


def timelines(done):
    return [[column.tolist() for column in done.timeline(rank)] for rank in done.timed.ranks]


def test_the_slowest_rank_of_each_iteration_decides():
    done = calibrate(group_of([[3, 3], [5, 5], [4, 4]], nbytes=3_000_000), links=NOTHING)
    # 5 ms, then 2 (3 - 1) steps of 1 MB at 1 GB/s.
    assert done.iteration_time_s.median == pytest.approx(0.005 + 0.004)
    assert done.iteration_time_of_medians_s == pytest.approx(0.009)
    assert done.uncalibrated_iteration_time_s == pytest.approx(0.009)
    assert "closed form" in done.notes[0] and done.comm == "closed form"


def test_64_members_that_need_about_10_ms_take_longer_than_any_one():
    about = random.Random(1)
    spans = [[about.gauss(10, 0.2) for _ in range(40)] for _ in range(64)]
    done = calibrate(group_of(spans), links=NOTHING)
    # The mean of the greatest of 64 normals lies 2.35 standard deviations above 10; that of what was drawn:
    means = [statistics.mean(max(about.choice(own) for own in spans) for _ in range(40)) for _ in range(50)]
    assert done.iteration_times_s.mean() * 1e3 == pytest.approx(statistics.mean(means), abs=0.02)
    assert done.iteration_time_s.median * 1e3 == pytest.approx(10.47, abs=0.05)
    assert done.iteration_time_of_medians_s < 0.0102


def test_calibration_does_not_depend_on_the_number_of_threads():
    about = random.Random(2)
    trace = group_of([[about.uniform(5, 9) for _ in range(6)] for _ in range(4)])
    network = NetworkOptions(one_switch(4, 1e9, 1e-6))
    for options in ({}, {"network": network}):
        one, four = (calibrate(trace, samples=9, seed=7, threads=threads, **options) for threads in (1, 4))
        assert one.to_json() == four.to_json()
        assert np.array_equal(one.iteration_times_s, four.iteration_times_s)
        assert timelines(one) == timelines(four)
        assert calibrate(trace, samples=9, seed=8, **options).to_json() != one.to_json()


def test_a_recorded_run_takes_the_least_time_of_each_transfer():
    # max(3, 5, 4) + 1 for the issue + 2 for the transfer, as the record has it.
    done = calibrate(data_parallel([3, 5, 4], iterations=4))
    assert done.iteration_time_s.median == pytest.approx(0.008) and done.comm == "recorded"
    assert done.warmup_iterations == 1
    assert calibrate(message_pair()).iteration_time_s.median == pytest.approx(0.005)


def test_the_trace_is_the_execution_nearest_to_the_median_and_replays_to_it(tmp_path):
    about = random.Random(3)
    timed = group_of([[about.uniform(5, 9) for _ in range(8)] for _ in range(3)])
    done = calibrate(timed, samples=20, links=NOTHING)
    trace = done.trace()
    trace.validate()
    assert trace.timed and trace.metadata["calibrated"]["iteration_time_s"]["median"] == done.iteration_time_s.median
    own = np.median(done.iteration_times_s, axis=1)
    distance = np.abs(own - done.iteration_time_s.median)
    assert distance[done.sample] == distance.min()
    again = replay(trace)
    times = [one.time_s for one in again.iterations][done.first_counted :]
    assert times == pytest.approx(done.iteration_times_s[done.sample].tolist(), abs=1e-12)
    # Calibrating it changes nothing: neither a time nor a figure.
    twice = calibrate(trace)
    assert timelines(twice) == timelines(done)
    assert dataclasses.asdict(twice.iteration_time_s) == dataclasses.asdict(done.iteration_time_s)
    assert prismllm._graph.first_difference(trace.graph, twice.trace().graph, True) is None


@settings(max_examples=30)
@given(
    spans=st.lists(st.lists(st.integers(1, 50), min_size=3, max_size=3), min_size=2, max_size=5),
    shifts=st.lists(st.integers(0, 10**15), min_size=5, max_size=5),
    factor=st.integers(2, 9),
)
def test_clocks_mean_nothing_and_time_scales(spans, shifts, factor):
    done = calibrate(group_of(spans), samples=4, links=NOTHING)
    shifted = calibrate(group_of(spans, clock=shifts), samples=4, links=NOTHING)
    assert timelines(shifted) == timelines(done) and shifted.to_json() == done.to_json()
    slower = calibrate(group_of([[factor * span for span in own] for own in spans]), samples=4, links=NOTHING)
    assert slower.iteration_times_s == pytest.approx(factor * done.iteration_times_s)
    # Whatever was drawn, an iteration lasts as long as some rank's span, and no shorter than the longest shortest one.
    lasted = set(np.round(done.iteration_times_s * 1e3).astype(int).ravel().tolist())
    assert lasted <= {span for own in spans for span in own}
    assert min(lasted) >= max(min(own) for own in spans)


@settings(max_examples=30)
@given(
    spans=st.lists(st.lists(st.integers(1, 50), min_size=3, max_size=3), min_size=3, max_size=5),
    new=st.lists(st.integers(1, 50), min_size=3, max_size=3),
    rank=st.integers(0, 2),
)
def test_ranks_that_are_timed_again_are_put_onto_the_timeline_as_if_all_were_calibrated_anew(spans, new, rank):
    base = calibrate(group_of(spans), samples=3, links=NOTHING)
    changed = [[*own] for own in spans]
    changed[rank] = new
    done = realign(base.trace(), group_of(changed), [rank])
    # From scratch: the chosen execution's spans of all others and the new ones of this rank, each iteration by itself.
    kept = [base.timeline(other)[0] for other in range(len(spans))]
    lengths = [[base.timeline(other)[1][4 * i] // MS for i in range(3)] for other in range(len(kept))]
    before = lengths[rank]
    lengths[rank] = new
    expected = [max(own[i] for own in lengths) / 1e3 for i in range(3)]
    assert [one.time_s for one in done.iterations] == pytest.approx(expected)
    assert [one.time_s for one in replay(done.trace).iterations] == pytest.approx(expected)
    assert done.nodes == len(spans) * (4 * 3 + 1)
    assert (done.visited == 0) == (before == new)


def test_a_change_within_the_slack_of_a_rank_is_not_followed_further():
    base = calibrate(group_of([[10] * 20, [5] * 20], closed=False), links=NOTHING).trace()
    done = realign(base, group_of([[10] * 20, [7] * 20], closed=False), [1])
    # The span, its issue, both parts of the collective, the own wait.
    assert done.visited == 20 * 5 and done.nodes == 20 * 8
    assert {one.time_s for one in done.iterations} == {0.01}
    assert done.trace.metadata["calibrated"]["realigned_ranks"] == [1]
    assert realign(base, group_of([[10] * 20, [5] * 20], closed=False), [0, 1]).visited == 0


def test_a_report_says_what_the_spans_of_a_calibrated_trace_are():
    trace, meaning = with_times(calibrate(group_of([[1, 2], [3, 4]])).trace())
    assert trace.timed and "calibrated" in meaning and "real run" not in meaning


@pytest.mark.parametrize(
    "metadata",
    [
        {"timing": [1]},
        {"timing": {"method": 5, "warmup_iterations": -1}},
        {"calibrated": "yes"},
        {"calibrated": {"iteration_time_s": [1], "comm": 3}},
        {"calibrated": {"iteration_time_s": {"median": 1e300, "p05": "x", "p95": -1}}},
    ],
)
def test_metadata_that_nobody_here_wrote_is_no_reason_to_fail(metadata):
    done = calibrate(data_parallel([3, 5], iterations=4, metadata=metadata))
    assert done.iteration_time_s.median == pytest.approx(0.008) and done.comm == "recorded"


def test_another_structure_is_not_put_onto_a_timeline():
    base = calibrate(group_of([[1, 2], [1, 2]])).trace()
    with pytest.raises(RuntimeError, match="the structure has changed: rank 1, op: nothing more, and all_reduce where"):
        realign(base, group_of([[1, 2, 3], [1, 2, 3]], closed=False), [1])
    with pytest.raises(ValueError, match="rank 7; accepted: 0 to 1"):
        realign(base, base, [7])


def test_spans_have_quantiles_over_their_repetitions():
    trace = group_of([[1, 2, 3, 4, 5], [7, 7, 7, 7, 7]])
    one, two = span_quantiles(trace, warmup=0)
    assert (one.rank, two.rank) == (0, 1) and one.iterations == [0, 1, 2, 3, 4]
    assert one.p50_s[0] == pytest.approx(0.003)
    assert (one.p05_s[0], one.p95_s[0]) == pytest.approx((0.0012, 0.0048))
    assert two.p05_s[0] == two.p95_s[0] == pytest.approx(0.007)
    rank = trace.rank(0)
    assert np.array_equal(rank.duration_ns[one.node] / 1e9, one.duration_s)
    assert span_quantiles(trace, rank=1, warmup=3)[0].iterations == [3, 4]
    with pytest.raises(IndexError, match="rank 5"):
        span_quantiles(trace, rank=5)


def test_a_trace_with_fewer_iterations_than_warm_up_is_not_refused_for_what_it_says_itself():
    done = calibrate(group_of([[9], [8]], warmup=2), links=NOTHING)
    assert done.warmup_iterations == 0 and done.iteration_time_s.median == pytest.approx(0.009)
    assert "2 iterations of warm-up" in " ".join(done.notes)


def test_the_command_writes_a_calibrated_trace(run_prism, tmp_path):
    group_of([[3, 3, 3], [5, 5, 5]]).write(tmp_path / "job.timed.prism")
    done = run_prism("calibrate", "job.timed.prism", "--samples", 10, "--seed", 3, "--json", "-")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures.keys() == KEYS | {"trace"} and figures["trace"] == "job.cal.prism"
    assert figures["iteration_time_s"].keys() == {"median", "p05", "p95"}
    assert (figures["samples"], figures["seed"]) == (10, 3)
    summary = json.loads(run_prism("info", "job.cal.prism", "--json", "-").stdout)
    assert summary["timed"] and summary["calibrated"]
    replayed = json.loads(run_prism("replay", "job.cal.prism", "--json", "-").stdout)
    assert replayed["iterations"][1]["time_s"] == pytest.approx(figures["iteration_time_s"]["median"])
    said = run_prism("calibrate", "job.timed.prism", "-o", "other.prism").stdout
    assert "iteration" in said and "uncalibrated" in said and (tmp_path / "other.prism").exists()


def test_the_command_takes_transfers_from_a_cluster(run_prism, tmp_path):
    group_of([[3] * 3, [5] * 3], nbytes=2_000_000).write(tmp_path / "job.timed.prism")
    (tmp_path / "links.toml").write_text(CLUSTER)
    figures = {}
    for network in ("flow", "closed"):
        done = run_prism("calibrate", "job.timed.prism", "--comm", "links.toml", "--network", network, "--json", "-")
        assert done.returncode == 0, done.stderr
        figures[network] = json.loads(done.stdout)
        assert figures[network]["comm"] == f"links.toml, {network}"
    # Two steps of a ring of two, 1 MB each over 1 GB/s.
    assert figures["flow"]["iteration_time_s"]["median"] == pytest.approx(0.005 + 0.002, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bare.prism"], "the trace has no measured times, only structure; time it first (prism time)"),
        (["job.prism", "--network", "flow"], "--network is of a --comm file"),
        (["job.prism", "--warmup", "3"], "3 iterations of warm-up; accepted: 0 to 1, as the trace has 2"),
        (["job.prism", "--samples", "0"], "0 is not in the range 1<=x<=1000000"),
        (["job.prism", "-o", "job.prism"], "-o: 'job.prism' cannot be written (it is the TRACE as well)"),
        (["job.prism", "-o", "nowhere/x.prism"], "-o: 'nowhere/x.prism' cannot be written"),
        (["absent.prism"], "there is no trace 'absent.prism'"),
    ],
)
def test_wrong_use_is_one_line_and_leaves_nothing(run_prism, tmp_path, arguments, complaint):
    group_of([[1, 2], [3, 4]]).write(tmp_path / "job.prism")
    data_parallel([1, 2], timed=False).write(tmp_path / "bare.prism")
    before = sorted(tmp_path.iterdir())
    done = run_prism("calibrate", *arguments)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_cycle_names_who_waits_for_whom(run_prism, tmp_path):
    recordings = []
    for rank in (0, 1):
        r = Recording(rank, [("tensor", [0, 1]), ("data", [0, 1])])
        for group in (0, 1) if rank == 0 else (1, 0):
            r.wait(*r.issue("all_reduce", group, 4, r.now), r.now)
        recordings.append(r)
    build(recordings, metadata=timing()).write(tmp_path / "job.prism")
    done = run_prism("calibrate", "job.prism")
    assert done.returncode == 4
    assert "rank 0 (main) waits for all_reduce 0 of group 'tensor': rank 1 has not joined" in done.stderr
    assert "rank 1 (main) waits for all_reduce 0 of group 'data': rank 0 has not joined" in done.stderr
    assert not (tmp_path / "job.cal.prism").exists()
