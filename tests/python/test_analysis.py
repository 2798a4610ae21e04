"""Figures of traces that are known by arithmetic (small_traces.py)."""

import numpy as np
import pytest
from small_traces import MS, Recording, build, data_parallel, message_pair

from prismllm.analysis import Meetings, iteration_times, operations, usage
from prismllm.replay import replay


def test_a_straggler_makes_the_others_wait_and_only_the_transfer_is_exposed():
    result = usage(data_parallel([10, 14, 12], iterations=3))
    for iteration in range(3):
        assert result.busy[iteration].tolist() == [11 * MS, 15 * MS, 13 * MS]
        assert result.exposed[iteration].tolist() == [2 * MS] * 3
        assert result.waiting[iteration].tolist() == [4 * MS, 0, 2 * MS]
    assert result.busy[-1].tolist() == [33 * MS, 45 * MS, 39 * MS]
    assert result.caused.tolist() == [0, 3 * (4 + 2) * MS, 0]  # all waiting was for rank 1


def test_a_receiver_waits_until_the_sender_has_come():
    result = usage(message_pair())
    assert result.busy[0].tolist() == [4 * MS, 1 * MS]
    assert result.waiting[0].tolist() == [0, 3 * MS]
    assert result.exposed[0].tolist() == [1 * MS, 1 * MS]


def test_iterations_last_from_mark_to_mark_and_the_last_one_to_its_end():
    times = iteration_times(data_parallel([10, 14], iterations=3))
    assert times.tolist() == [[17 * MS, 17 * MS]] * 3


def test_what_follows_the_loop_is_no_iteration():
    rank = Recording(0, [("default_pg", [0])])
    for i in range(2):
        rank.mark()
        rank.compute(5 * MS)
        rank.wait(*rank.issue("barrier", 0, 0, (i + 1) * 6 * MS), (i + 1) * 6 * MS)
    rank.mark()
    rank.compute(100 * MS)
    assert iteration_times(build([rank])).tolist() == [[6 * MS], [6 * MS]]


def test_a_rank_without_marks_does_not_count_in_the_iterations():
    marked, unmarked = (Recording(rank, [("default_pg", [0, 1])]) for rank in (0, 1))
    for i in range(2):
        marked.mark()
        for rank in (marked, unmarked):
            rank.compute(5 * MS)
            rank.wait(*rank.issue("barrier", 0, 0, (i + 1) * 6 * MS), (i + 1) * 6 * MS)
    trace = build([marked, unmarked])
    assert iteration_times(trace).max(axis=1).tolist() == [6 * MS, 6 * MS]
    assert [iteration.time_s for iteration in replay(trace).iterations] == [0.006, 0.006]


def test_a_trace_without_marks_has_no_iterations_but_totals():
    rank = Recording(0, [("default_pg", [0])])
    rank.compute(5 * MS)
    trace = build([rank])
    assert iteration_times(trace).shape == (0, 1)
    assert usage(trace).busy.tolist() == [[5 * MS]]


def test_members_of_a_collective_meet_and_messages_meet_by_tag_and_order():
    meetings = Meetings(data_parallel([1, 2, 3], iterations=2))
    assert meetings.count == 2
    assert sorted(meetings.rank[meetings.meeting == meetings.meeting[0]].tolist()) == [0, 1, 2]
    assert Meetings(message_pair(iterations=5)).count == 5


def test_one_late_member_of_a_broadcast_holds_nobody_but_itself():
    """Root comes at 0, rank 1 at 1 ms, rank 2 at 50 ms; each transfer lasts 1 ms."""
    recordings = []
    for number, (own, end) in enumerate([(0, 1), (1, 2), (50, 51)]):
        rank = Recording(number, [("default_pg", [0, 1, 2])])
        rank.compute(own * MS)
        flags = 2 if number == 0 else 0
        rank.wait(*rank.issue("broadcast", 0, 8, end * MS, peer=0, flags=flags), end * MS)
        recordings.append(rank)
    result = usage(build(recordings))
    assert result.waiting[-1].tolist() == [0, 0, 0]
    assert result.exposed[-1].tolist() == [MS, MS, MS]


def test_the_table_counts_a_collective_once_and_bytes_of_all_members():
    (row,) = operations(data_parallel([10, 14, 12], iterations=3, nbytes=4096))
    assert (row.op, row.group, row.count, row.bytes) == ("all_reduce", "all 3 ranks", 3, 3 * 3 * 4096)
    assert row.transfer_seconds == pytest.approx(3 * 3 * 2e-3)
    assert row.rank_seconds == pytest.approx(3 * (3 * 2e-3 + 4e-3 + 2e-3))
    send, recv = sorted(operations(message_pair()), key=lambda row: row.op, reverse=True)
    assert (send.op, send.count, send.bytes) == ("send", 2, 128)
    assert (recv.op, recv.count, recv.bytes) == ("recv", 2, 128)


def test_a_send_that_was_looked_at_late_ended_when_it_was_received():
    """Sent at 1 ms, received at 2 ms; the sender computes until 9 ms before it waits."""
    sender, receiver = (Recording(rank, [("default_pg", [0, 1])]) for rank in (0, 1))
    sender.compute(MS)
    pending = sender.issue("send", 0, 64, 9 * MS, peer=1)
    sender.compute(8 * MS)
    sender.wait(*pending, 9 * MS)
    receiver.wait(*receiver.issue("recv", 0, 64, 2 * MS, peer=0), 2 * MS)
    meetings = Meetings(build([sender, receiver]))
    assert meetings.end_ns.tolist() == [2 * MS, 2 * MS]


def test_groups_of_one_shape_share_a_row():
    recordings = []
    for number in range(4):
        pair = [number % 2, number % 2 + 2]
        rank = Recording(number, [(f"pair-{number % 2}", pair)])
        rank.wait(*rank.issue("all_reduce", 0, 4, MS), MS)
        recordings.append(rank)
    (row,) = operations(build(recordings))
    assert (row.group, row.count) == ("2 groups of 2 ranks, 2 apart", 2)


@pytest.mark.parametrize("trace", [data_parallel([10, 14, 12, 3], iterations=4), message_pair(iterations=4)])
def test_replay_of_a_recorded_trace_agrees(trace):
    report = replay(trace)
    own = usage(trace)
    for column, rank in enumerate(report.ranks):
        assert round(rank.busy_s * 1e9) == own.busy[-1, column]
        assert round(rank.exposed_comm_s * 1e9) == own.exposed[-1, column]
        assert round(rank.waiting_s * 1e9) == own.waiting[-1, column]
    assert [round(i.time_s * 1e9) for i in report.iterations] == np.max(iteration_times(trace), axis=1).tolist()
