"""Scenario files: what changes, by arithmetic, and what is refused in one line."""

import json

import pytest
from click.testing import CliRunner
from small_traces import MS, Recording, build, data_parallel, message_pair

from prismllm.calibrate import calibrate
from prismllm.cli import prism
from prismllm.replay import (
    Communication,
    Edit,
    LinkEdit,
    Links,
    NetworkOptions,
    Overlap,
    Scenario,
    as_recorded,
    load_scenario,
    replay,
)


def training(iterations=2, transfer_ms=8, **options):
    """On two ranks: backward 10 ms, an asynchronous all_reduce, 6 ms more of backward behind which it hides, the wait,
    an optimizer of 10 ms."""
    recordings = []
    for number in range(2):
        rank = Recording(number, [("dp", [0, 1])])
        for _ in range(iterations):
            rank.mark()
            rank.compute(10 * MS, name="backward.0")
            end = rank.now + transfer_ms * MS
            work = rank.issue("all_reduce", 0, 1 << 20, end)
            rank.compute(6 * MS, name="backward.1")
            rank.wait(*work, max(rank.now, end))
            rank.compute(10 * MS, name="optimizer")
        recordings.append(rank)
    return build(recordings, **options)


@pytest.fixture
def times(tmp_path):
    """Iteration times [ms] of a trace under a scenario given as TOML."""

    def run(trace, text, **options):
        path = tmp_path / "scenario.toml"
        path.write_text(text)
        done = replay(trace, scenario=load_scenario(path), **options)
        return [round(one.time_s * 1e3, 6) for one in done.iterations]

    return run


def test_the_optimizer_30_percent_faster(times):
    assert times(training(), "") == [28, 28]
    assert times(training(), '[[edit]]\nname = "optimizer"\nscale = 0.7') == [25, 25]


def test_rank_5_throttled_to_900_of_1400_mhz(times):
    trace = data_parallel([9] * 8, iterations=2)
    assert times(trace, "[[edit]]\nranks = 5\nscale = 1.5555555555555556") == [14 + 1 + 2] * 2


def test_ranges_lists_classes_and_set_times(times):
    trace = data_parallel([10, 12, 14, 16], iterations=1)
    assert times(trace, "") == [19]
    assert times(trace, '[[edit]]\nranks = "2-3"\nset_s = 0.011') == [15]
    assert times(trace, "[[edit]]\nranks = [3, 0]\nadd_s = 0.001") == [20]
    assert times(trace, "[[edit]]\nclass = 0\nscale = 2") == [35]
    assert times(trace, '[[edit]]\nname = "for*"\nset_s = 0.020\nadd_s = 0.001') == [24]


def test_edits_apply_one_after_the_other(times):
    assert times(training(), "[[edit]]\nset_s = 0.001\n[[edit]]\nscale = 3") == [3 + 8 + 3, 14]


def test_slower_and_faster_transfers(times):
    slower = '[[communication]]\nop = "all_reduce"\nscale = 2'
    assert times(training(), slower) == [36, 36]  # 10 + 16 + 10
    assert times(training(), "[[communication]]\niteration = 1\nset_s = 0.003") == [28, 26]
    assert times(training(), '[[communication]]\ngroup = "d?"\nranks = 1\nadd_s = 0.001') == [29, 29]
    # 3 ms of computing, then the message.
    assert times(message_pair(1), "[[communication]]\nranks = 1\nset_s = 0.010") == [14]


def test_an_edit_of_sends_is_felt_by_the_receiver(tmp_path):
    (tmp_path / "slow.toml").write_text('[[communication]]\nop = "send"\nscale = 8')
    done = replay(message_pair(1), scenario=load_scenario(tmp_path / "slow.toml"))
    # After 3 ms of computing the message takes 8 ms in the place of 1, at both ends; each computes 1 ms more.
    assert [int((start_ns + duration_ns).max()) / MS for start_ns, duration_ns in map(done.timeline, (0, 1))] == [
        12,
        12,
    ]
    assert done.ranks[1].exposed_comm_s == pytest.approx(0.008)


def test_overlap_dropped_and_added(times):
    assert times(training(), '[[overlap]]\nuntil = "issue"') == [10 + 8 + 6 + 10] * 2
    # 20 ms of transfer from 10 ms on: behind 6 ms of backward, and behind 10 ms of optimizer as well.
    trace = training(transfer_ms=20)
    assert times(trace, "") == [10 + 20 + 10] * 2
    assert times(trace, '[[overlap]]\nuntil = "iteration_end"') == [30, 30]
    assert times(trace, '[[overlap]]\nuntil = "issue"\n[[overlap]]\nuntil_span = "optimizer"') == [40, 40]


def test_a_moved_wait_is_a_trace_like_any_other():
    done = replay(training(transfer_ms=20), overlaps=[Overlap(until="iteration_end")])
    done.trace.validate()
    assert done.retimed().frames.iterations.time_s.tolist() == pytest.approx([0.030, 0.030])
    assert [hop.kind for hop in done.path.of(0)] == ["compute", "transfer"]


def test_links_of_the_closed_form(times):
    # A ring of two: 2 steps of 1 ms and 2^19 bytes at 2^29 bytes/s.
    links = "[links]\nlatency_s = 0.001\nbytes_per_second = 536870912"
    transfer = round(2 * (1 + 1e3 / 1024), 6)
    assert times(training(timed=False), links) == [pytest.approx(10 + max(6, transfer) + 10)] * 2


SLICES = {"program": ["train.py"], "timing": {"method": "slices", "warmup_iterations": 0, "slices": [[0], [1]]}}


def test_links_of_slices_which_do_not_time_transfers(times):
    """Whatever their transfers and waits seem to have taken."""
    links = "[links]\nlatency_s = 0.001\nbytes_per_second = 536870912"
    transfer = round(2 * (1 + 1e3 / 1024), 6)
    for seemed in (0, 500):
        trace = training(transfer_ms=seemed, metadata=SLICES)
        assert times(trace, links) == [pytest.approx(10 + max(6, transfer) + 10)] * 2
        fast = replay(trace, links=Links(latency_s=0, bytes_per_second=1e15))
        assert [one.time_s for one in fast.iterations] == pytest.approx([0.026] * 2, abs=1e-8)
        assert any("slices do not time transfers: closed form" in note for note in fast.notes)
        assert times(trace, links + "\n[[communication]]\nset_s = 0.02") == [10 + 20 + 10] * 2
        # As a timeline it is its replay, too.
        assert as_recorded(trace).iterations[0].time_s == pytest.approx(0.026, abs=0.001)


def test_a_calibrated_trace_has_times_of_its_own(times):
    calibrated = calibrate(training(transfer_ms=0, metadata=SLICES)).trace()
    with pytest.raises(ValueError, match=r"\[links\] is of the closed form: the transfers of this trace have times"):
        times(calibrated, "[links]\nlatency_s = 0.001")


def test_a_replay_of_a_replay_is_the_same(times):
    """Of slices as well: what was replayed is a timeline."""
    for metadata in (SLICES, {"program": ["train.py"]}):
        once = replay(training(transfer_ms=7, metadata=metadata), links=Links(latency_s=0.002))
        again = replay(once.retimed())
        for rank in (0, 1):
            assert [column.tolist() for column in again.timeline(rank)] == [
                column.tolist() for column in once.timeline(rank)
            ]


@pytest.fixture
def cluster(repository):
    """Two devices."""
    from prismllm.cluster import load

    return load(repository / "examples/clusters/laptops.toml")


def test_links_of_a_cluster_at_half_their_rate(cluster):
    trace = data_parallel([5, 5], nbytes=200_000_000, iterations=1)

    def seconds(*edits):
        return replay(trace, network=NetworkOptions(cluster, link_edits=edits)).iterations[0].time_s

    own = seconds()
    # A ring of two moves 200 MB in two steps; all links at half of their rates: the transfer takes twice as long.
    slow = seconds(LinkEdit("*", scale=0.5))
    assert slow - 0.006 == pytest.approx(2 * (own - 0.006), rel=1e-3)
    assert seconds(LinkEdit("*", latency_s=0.05)) > own + 0.1
    assert seconds(LinkEdit("*", bytes_per_second=1e6)) == pytest.approx(200, rel=1e-3)


SCENARIO_ERRORS = [
    ("[[edit]]\nranks = '3-1'\nscale = 2", "edit 0: ranks = '3-1'; accepted: ranks and ascending ranges"),
    ("[[edit]]\nranks = [1.5]\nscale = 2", "edit 0: ranks = [1.5]; accepted: ranks and"),
    ("[[edit]]\nranks = []\nscale = 2", "edit 0: ranks = []; accepted: ranks and"),
    ("[[edit]]\nscale = 2\n[[edit]]\nclass = 'a'\nscale = 2", "edit 1: class = 'a'; accepted: 0 to"),
    ("[[edit]]\nclass = 9\nscale = 2", "edit 0 (class 9): matches no compute span"),
    ("[[edit]]\nset_s = -1", "edit 0: set_s = -1; accepted: 0 to 9000000000"),
    ("[[edit]]\nclass_id = 0\nscale = 2", "edit 0: class_id = 0; accepted: rank, iteration, name"),
    ("[[communication]]\nop = 3\nscale = 2", "communication 0: op = 3; accepted: text"),
    ("[[communication]]\nop = 'all_reduce'", "communication 0 changes nothing: give it scale, add_s or set_s"),
    ("[[communication]]\nop = 'send'\nscale = 2", "communication 0 (op 'send'): matches no communication"),
    ("[[communication]]\nbytes = 2", "communication 0: bytes = 2; accepted: op, group, ranks, class"),
    ("communication = 1", "communication = 1; accepted: tables [[communication]]"),
    ("[[overlap]]\nuntil = 'now'", "overlap 0: until = 'now'; accepted: issue, iteration_end"),
    ("[[overlap]]\nop = 'all_reduce'", "overlap 0: until and until_span; accepted: one of them"),
    (
        "[[overlap]]\nuntil_span = 'nothing'",
        "overlap 0 (all communication): until_span = 'nothing' is the name of no "
        "compute span; accepted: backward.0, backward.1, optimizer",
    ),
    ("[[overlap]]\nuntil_span = 'backward.0'", "overlap 0 (all communication): moves no wait"),
    ("[[edit]]\nrank = 1\nranks = '0-1'\nscale = 2", "edit 0: rank = 1 beside ranks = '0-1'; accepted: one of them"),
    ("[[overlap]]\nuntil = 'issue'\n[[edit]]\nrank = 0\nnode = 3\nscale = 2", "edit 0: node = 3; overlaps number"),
    ("[[link]]\nname = '*'\nscale = 2", "[[link]] changes the links of a cluster: give one"),
    ("[[link]]\nscale = 2", "link 0: give it the name of links"),
    ("[[link]]\nname = '*'\nscale = 0", "link 0: scale = 0; accepted: more than 0"),
    (
        "[links]\nlatency_s = 1e-6",
        "[links] is of the closed form: the transfers of this trace have times of their own; "
        "accepted: [[communication]], or a network (--comm)",
    ),
    ("[links]\nlatency = 1", "links: latency = 1; accepted: latency_s, bytes_per_second"),
    ("[links]\nlatency_s = -1", "links: latency_s = -1; accepted: 0 to 1"),
    (f"x = {'[' * 5000}{']' * 5000}", "values are nested too deeply"),
    ("[network]\nx = 1", "'network' is not known; accepted: tables [[edit]], [[communication]], [[overlap]], [[link]]"),
]


@pytest.mark.parametrize(("text", "complaint"), SCENARIO_ERRORS)
def test_what_is_no_change_is_refused_with_file_table_key_and_value(tmp_path, text, complaint):
    training().write(tmp_path / "job.prism")
    (tmp_path / "what_if.toml").write_text(text)
    arguments = ["replay", str(tmp_path / "job.prism"), "--scenario", str(tmp_path / "what_if.toml")]
    done = CliRunner().invoke(prism, arguments)
    assert done.exit_code == 2, done.output
    (line,) = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    assert f"what_if.toml: {complaint}" in line


def test_on_a_network_transfers_and_unknown_links_are_refused(cluster):
    trace = data_parallel([5, 5], nbytes=1000)
    with pytest.raises(ValueError, match="on a network communication takes what the links allow"):
        replay(trace, network=NetworkOptions(cluster), communications=[Communication(scale=2)])
    with pytest.raises(ValueError, match="link 0: name = 'x'; accepted: patterns of the cluster's"):
        replay(trace, network=NetworkOptions(cluster, link_edits=[LinkEdit("x", scale=2)]))


def test_prism_replay_names_late_comers_and_bubbles(tmp_path):
    trace = str(tmp_path / "job.prism")
    data_parallel([10, 14, 12], iterations=3).write(trace)
    done = CliRunner().invoke(prism, ["replay", trace, "--json", str(tmp_path / "out.json")])
    assert "rank 1 to all_reduce 0 of group 'default_pg', by 2 ms: others waited 6 ms in all" in done.output
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["ranks"][0].keys() == {"rank", "busy_s", "exposed_comm_s", "waiting_s", "bubble_s",
                                          "peak_memory_bytes", "peak_memory_at_s"}  # fmt: skip
    assert summary["iterations"][0] == {"index": 0, "time_s": 0.017, "rank": 0}
    assert sum(hop["duration_s"] for hop in summary["critical_path"]) == pytest.approx(0.017)
    message_pair().write(trace)
    done = CliRunner().invoke(prism, ["replay", trace])
    assert "waiting 6 ms, bubble 6 ms" in done.output


def test_edits_in_python_are_those_of_the_file():
    trace = data_parallel([10, 12], iterations=1)
    (one,) = replay(trace, [Edit(ranks=[1], scale=2), Edit(class_id=0, add_s=0.001)]).iterations
    assert one.time_s == pytest.approx(0.024 + 0.001 + 0.003)


def test_every_recipe_of_the_documentation_is_a_scenario(repository, tmp_path):
    text = (repository / "docs/what_if.md").read_text()
    recipes = [block.split("```")[0] for block in text.split("```toml\n")[1:]]
    assert len(recipes) >= 8
    for number, recipe in enumerate(recipes):
        path = tmp_path / f"{number}.toml"
        path.write_text(recipe)
        assert load_scenario(path) != Scenario(), recipe
