"""Measuring communication and fitting its model: what the model says is arithmetic, and a fit to what a model says
finds that model again."""

import json
import os
import statistics
from dataclasses import replace

import pytest
from click.testing import CliRunner

import prismllm.comm
from prismllm.cli import prism
from prismllm.cluster import loads
from prismllm.comm import CommModel, Measured, Place, Point, fit, make_plan
from prismllm.comm.fitting import Fit, Residual
from prismllm.comm.measure import _results, summary
from prismllm.comm.plan import OPS
from prismllm.comm.predict import Predictor
from prismllm.comm.report import by_operation, in_words, misfits, write_plot
from prismllm.launch import LaunchError
from prismllm.testbed import Testbed, TestbedError, rate

MODEL = CommModel(message_s=30e-6, operation_s=60e-6, bytes_per_second=50e6, burst_bytes=30e3, delay_s=100e-6)
PAIR = ((0, 1),)


TWO = Place(2, 2)


def predicted(points, model=MODEL, place=TWO, processors=2, again_s=0.0):
    measured = [Measured(point, 1.0, 0.0, again_s) for point in points]
    return Predictor(measured, place.ranks, "gloo")(model.to_toml(place, processors, "test"))


def test_a_message_takes_its_ends_the_latency_and_what_the_link_lets_through():
    small, large = predicted([Point("send", PAIR, 1000), Point("send", PAIR, 1_000_000)])
    # 30 us at either end, 100 us on the way; 1,000 bytes at 20 times 50 MB/s, 30,000 of 1,000,000 ahead of the rate.
    assert small == pytest.approx(2 * 30e-6 + 100e-6 + 1000 / 1e9, abs=2e-9)
    assert large == pytest.approx(2 * 30e-6 + 100e-6 + (1_000_000 - 30_000) / 50e6, rel=1e-6)


def test_messages_of_all_pairs_take_turns_on_the_processors():
    pairs = tuple((i, i + 4) for i in range(4))
    two, eight = (predicted([Point("send", pairs, 4)], place=Place(8, 8), processors=count)[0] for count in (2, 8))
    # Four messages on two processors: two take turns at the sender; then the receivers' ends come as these have left.
    assert eight == pytest.approx(2 * 30e-6 + 100e-6, abs=1e-8)
    assert two == pytest.approx(eight + 30e-6, abs=1e-8)


def test_members_of_a_collective_need_a_processor_before_their_messages():
    with_time = predicted([Point("broadcast", PAIR, 4)], processors=1)[0]
    without = predicted([Point("broadcast", PAIR, 4)], replace(MODEL, operation_s=0), processors=1)[0]
    assert with_time == pytest.approx(without + 2 * 60e-6, abs=1e-8)


def test_an_all_reduce_of_gloo_is_a_ring_in_segments_and_overlaps_its_messages_with_the_wire():
    model = replace(MODEL, operation_s=0, message_s=0, delay_s=0, burst_bytes=1)
    for members in (2, 4, 8):
        group = (tuple(range(members)),)
        (time,) = predicted([Point("all_reduce", group, 1 << 20)], model, Place(members, members))
        assert time == pytest.approx(2 * (members - 1) / members * (1 << 20) / 50e6, rel=1e-4)
        # What processors do for a segment, they do while the other one is on the wire.
        some = replace(model, message_s=20e-6)
        (slower,) = predicted([Point("all_reduce", group, 1 << 20)], some, Place(members, members), members)
        assert time < slower < time + 2 * (members - 1) * 2 * 20e-6


def test_a_word_that_a_receiver_is_ready_waits_behind_what_its_host_sends():
    crossing = [Point("crossing", ((0, 1, 2, 3),), 1 << 20)]
    model = replace(MODEL, message_s=0, delay_s=0, burst_bytes=1, queue_bytes=1)
    without, behind = (predicted(crossing, replace(model, queue_bytes=size), Place(4, 4))[0] for size in (1, 100_000))
    assert without == pytest.approx((1 << 20) / 50e6, rel=1e-3)  # both messages at once, each on its own link
    assert behind == pytest.approx(without + 100_000 / 50e6, abs=1e-6)


def test_rounds_back_to_back_are_issued_after_each_other():
    one = predicted([Point("all_gather", PAIR, 65536)])[0]
    four = predicted([Point("all_gather", PAIR, 65536, rounds=4)], again_s=1e-3)[0]
    assert four > 4 * one - 3 * 30e3 / 50e6 and four > 3e-3 + one


PARAMETERS = ("message_s", "operation_s", "bytes_per_second", "burst_bytes", "delay_s")


def of_model(points, model, place, spread=0.0):
    times = Predictor([Measured(point, 1.0) for point in points], place.ranks, "gloo")(model.to_toml(place, 2, "truth"))
    return [Measured(point, time, spread) for point, time in zip(points, times, strict=True)]


@pytest.mark.parametrize("truth", [
    MODEL, CommModel(message_s=5e-6, operation_s=150e-6, bytes_per_second=1.2e9, burst_bytes=200e3, delay_s=20e-6),
])  # fmt: skip
def test_a_fit_to_what_a_model_says_finds_the_model(truth):
    place = Place(4, 4)
    points = make_plan(place, ("all_reduce", "all_gather", "broadcast", "gather", "send", "crossing"), 1 << 22)
    found = fit(of_model(points, truth, place), place, 2)
    for name in (*PARAMETERS, "copy_bytes_per_second", "queue_bytes"):
        assert getattr(found.model, name) == pytest.approx(getattr(truth, name), rel=0.02), name
    # A simulation jumps where two messages change their order.
    errors = [abs(one.error) for one in found.held_out]
    assert max(errors) < 0.03 and statistics.median(errors) < 0.002


def test_a_fit_of_hosts_with_several_ranks_finds_both_kinds_of_links():
    place, truth = Place(4, 2), replace(MODEL, inside_bytes_per_second=3e9, inside_delay_s=15e-6)
    found = fit(of_model(make_plan(place, ("all_reduce", "broadcast", "send"), 1 << 22), truth, place), place, 2)
    for name in (*PARAMETERS, "inside_bytes_per_second", "inside_delay_s"):
        assert getattr(found.model, name) == pytest.approx(getattr(truth, name), rel=0.05), name


def test_outliers_do_not_rule_the_fit():
    place = Place(2, 2)
    measured = of_model(make_plan(place, ("all_reduce", "send"), 1 << 20), MODEL, place, spread=0.01)
    measured[3] = replace(measured[3], time_s=20 * measured[3].time_s)
    found = fit(measured, place, 2)
    assert found.model.bytes_per_second == pytest.approx(50e6, rel=0.02)


def test_too_few_or_impossible_measurements_are_refused():
    point = Point("send", PAIR, 4)
    with pytest.raises(ValueError, match="1 measurements for 4 parameters"):
        fit([Measured(point, 1.0)], Place(2, 2), 2)
    for time in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="accepted: above 0"):
            fit([Measured(point, time)] * 9, Place(2, 2), 2)


def test_the_plan_has_every_dimension_at_once_and_holds_sizes_out():
    points = make_plan(Place(4, 2))
    groups = {point.groups for point in points if point.op == "all_reduce"}
    assert groups == {((0, 2),), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 1, 2, 3),)}
    assert {point.op for point in points} == set(OPS)
    assert {point.bytes for point in points if point.held_out} == {8192, 32768, 131072, 524288}
    assert {point.members for point in points if point.op in ("send", "exchange")} == {2}
    assert {point.groups for point in points if point.op == "crossing"} == {((0, 1, 2, 3),)}


@pytest.mark.parametrize(("call", "said"), [
    (lambda: Place(1), "1 ranks"), (lambda: Place(6, 4), "6 ranks on 4 hosts"), (lambda: Place(2000), "2 to 1024"),
    (lambda: make_plan(Place(2), ("all_recude",)), "operation 'all_recude'; accepted: all_reduce"),
    (lambda: make_plan(Place(2), OPS, 10), "accepted: 16384 to"),
])  # fmt: skip
def test_plans_that_cannot_be_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_measurement_is_the_median_from_the_last_issue_to_the_last_end():
    point = Point("all_reduce", PAIR, 4, rounds=2)
    first = [[[0.1, 0.5], [0.6, 1.0]], [[0.2, 0.5], [0.7, 1.1]]]  # [member][round]: issued, done
    other = [[[0.1, 0.5], [0.6, 1.3]], [[0.3, 0.5], [0.7, 1.2]]]
    measured = summary(point, [first, other, other])
    assert measured.time_s == pytest.approx(1.0) and measured.again_s == pytest.approx(0.15)


POINT = Point("send", PAIR, 4)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "[[[[0.1]]]]", "[[[[0.1, NaN]]]]", "[[[]]]", '[[[["a", 1]]]]',
                                  "[" * 100_000, "[[[[0.1, 0.2], [0.1, 0.2]]]]",
                                  f"[[[[0.1, 1{'0' * 400}]]]]"])  # fmt: skip
def test_damaged_results_of_a_rank_are_refused(tmp_path, text):
    path = tmp_path / "0.json"
    path.write_text(text)
    with pytest.raises(LaunchError, match="what rank 0 has measured is missing or damaged"):
        _results(str(path), 0, [POINT], 1)
    path.write_text("[[[[0.1, 0.2]]]]")
    assert _results(str(path), 0, [POINT], 1) == [[[[0.1, 0.2]]]]


def test_the_table_by_operation_has_the_line_that_the_times_are_on(tmp_path):
    sizes = [(4, False), (8192, True), (65536, False), (1 << 20, True)]
    residuals = [
        Residual(Measured(Point("send", PAIR, size, 1, out), 1e-4 + 2e-8 * size), 1.02 * (1e-4 + 2e-8 * size))
        for size, out in sizes
    ]
    place = Place(2, 2)
    made = type("Made", (), {"residuals": residuals, "place": place})()
    (row,) = by_operation(made)
    assert (row["op"], row["ranks"]) == ("send", 2)
    assert row["alpha_s"] == pytest.approx(1e-4) and row["beta_s_per_byte"] == pytest.approx(2e-8)
    assert row["residual"] == pytest.approx(0.02)
    write_plot(made, str(tmp_path / "plot.html"))
    assert "send, 1 x 2 ranks" in (tmp_path / "plot.html").read_text()


def test_a_model_is_a_cluster_file_for_simulations(run_prism, tmp_path):
    (tmp_path / "model.toml").write_text(MODEL.to_toml(Place(4, 2), 2, "test", "Measured by hand."))
    graph = loads((tmp_path / "model.toml").read_text()).graph()
    assert graph.host.tolist() == [0, 0, 1, 1]
    shared = graph.processors
    assert (shared.count, shared.message_ps, shared.operation_ps) == (2, 30_000_000, 60_000_000)
    assert shared.copy_bytes_per_second == 2e9
    done = run_prism("simulate", "collective", "all_reduce", "--bytes", "1M", "--cluster", "model.toml", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["time_s"] > 1.5 * (1e6 - 6 * 60e3) / 50e6


@pytest.mark.alone  # it measures
def test_the_command_measures_plain_processes_of_this_machine(run_prism, tmp_path):
    done = run_prism("bench-comm", "-n", 2, "--op", "all_reduce", "--op", "send", "--max-bytes", "64K", "--repeat", 3,
                     "-o", "model.toml", "--plot", "plot.html", "--json", "-")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {(row["op"], row["ranks"]) for row in told["fits"]} == {("all_reduce", 2), ("send", 2)}
    assert set(told["fits"][0]) == {"op", "ranks", "alpha_s", "beta_s_per_byte", "residual"}
    assert all(point["time_s"] > 0 and point["predicted_s"] > 0 for point in told["points"])
    assert loads((tmp_path / "model.toml").read_text()).ranks == 2
    assert "plotly" in (tmp_path / "plot.html").read_text()


@pytest.mark.alone  # it measures
def test_the_command_on_the_testbed_finds_no_more_than_the_links_let_through(run_prism, tmp_path):
    try:
        with Testbed(2, rate("100mbit")):
            pass
    except TestbedError as reason:
        pytest.skip(str(reason))
    done = run_prism("bench-comm", "-n", 2, "--hosts", 2, "--rate", "100mbit", "--op", "send", "--max-bytes", "512K",
                     "--repeat", 3, "-o", "model.toml", "--json", "-")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for point in json.loads(done.stdout)["points"]:
        assert point["time_s"] >= (point["bytes"] - 20e3 - 40e3) / 12.5e6
    graph = loads((tmp_path / "model.toml").read_text()).graph()
    assert graph.bytes_per_second.min() <= 1.1 * 12.5e6


@pytest.mark.parametrize(("words", "said"), [
    (("-n", 1), "1 is not in the range"), (("-n", 2, "--op", "sned"), "operation 'sned'; accepted"),
    (("-n", 4, "--hosts", 3, "--rate", "1gbit"), "4 ranks on 3 hosts"), (("-n", 2, "--hosts", 2), "go together"),
    (("-n", 2, "-o", "missing/model.toml"), "cannot be written"), (("-n", 2, "--max-bytes", "1K"), "accepted: 16384"),
    (("-n", 2, "--op", "crossing"), "0 measurements for 3 parameters"),
    (("-n", 2, "--deadline", "nan"), "--deadline: nan; accepted: seconds from 1 on"),
    (("-n", 2, "--backend", "nccl"), "--backend nccl needs a GPU for each of 2 ranks, and 0 GPUs are visible; "
     "accepted: as many GPUs as ranks, or gloo"),
])  # fmt: skip
def test_wrong_use_is_said(run_prism, tmp_path, words, said):
    done = run_prism("bench-comm", *words, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_a_backend_that_does_not_exist_fails_and_leaves_no_model(run_prism, tmp_path):
    (tmp_path / "tmp").mkdir()
    done = run_prism("bench-comm", "-n", 2, "--backend", "glue", "--op", "send",
                     env=os.environ | {"TMPDIR": str(tmp_path / "tmp")})  # fmt: skip
    assert done.returncode == 3 and "glue" in done.stderr.lower()
    assert os.listdir(tmp_path) == ["tmp"]
    # Logs of all ranks are kept, and named.
    (kept,) = os.listdir(tmp_path / "tmp")
    logs = tmp_path / "tmp" / kept / "logs"
    assert done.stderr.endswith(f"(logs of all ranks: {logs})\n") and (logs / "rank1.err").exists()


def off_by(*errors, spread=0.0):
    """Sends of 8 KiB, 32 KiB, ... held out; how far the model is from each."""
    residuals = []
    for number, error in enumerate(errors):
        point = Point("send", PAIR, 8192 << (2 * number), held_out=True)
        residuals.append(Residual(Measured(point, 1e-3, spread), (1 + error) * 1e-3))
    return Fit(MODEL, 2, TWO, [Residual(Measured(Point("send", PAIR, 4), 1e-3), 9e-3), *residuals])


def test_sizes_at_which_the_model_is_far_off_are_named_the_worst_first():
    assert misfits(off_by(0.24, -0.24)) == []
    worst, other = misfits(off_by(0.02, 0.3, -0.5))
    assert (worst["op"], worst["ranks"], worst["bytes"]) == ("send", 2, 131072)
    assert worst["residual"] == pytest.approx(0.5) and other["residual"] == pytest.approx(0.3)
    assert in_words(worst) == "send of 128.0 KiB among 2 ranks, off by 50% (1 ms, predicted 500 µs)"
    # A measurement that differs from itself as much says nothing of the model.
    assert misfits(off_by(0.3, -0.5, spread=0.2)) == []


def test_the_command_says_where_the_fit_is_bad(tmp_path, monkeypatch):
    """The measurements of a backend that takes 20 times as long for 8 KiB."""

    def measured(points, ranks, *_):
        found = of_model(points, MODEL, Place(ranks))
        return [replace(one, time_s=20 * one.time_s) if one.point.bytes == 8192 else one for one in found]

    monkeypatch.setattr(prismllm.comm, "measure", measured)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        prism, ["bench-comm", "-n", "2", "--op", "send", "--op", "all_reduce", "--json", "out.json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "out.json").read_text())["misfits"]
    assert {(one["op"], one["ranks"], one["bytes"]) for one in told} == {("send", 2, 8192), ("all_reduce", 2, 8192)}
    assert all(one["residual"] == pytest.approx(0.95, abs=0.01) for one in told)
    assert "prism: the model is off by more than 25% at 2 sizes held out: do not trust it there. " in done.stderr
    assert "send of 8.0 KiB among 2 ranks, off by 95% (" in done.stderr
    assert "# Not to be trusted: send of 8.0 KiB among 2 ranks" in (tmp_path / "model.toml").read_text()
    loads((tmp_path / "model.toml").read_text())
