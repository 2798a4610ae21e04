"""prismllm.replay.reduce_groups: the process groups that are left when some ranks are real."""

import pytest
from small_traces import MS, Recording, build

from prismllm.replay import reduce_groups


def tensor_and_data_parallel():
    """Eight ranks: pairs are tensor parallel, even and odd ranks data parallel."""
    recordings = []
    for rank in range(8):
        groups = [("world", list(range(8))), (f"tp{rank // 2}", [rank // 2 * 2, rank // 2 * 2 + 1]),
                  (f"dp{rank % 2}", list(range(rank % 2, 8, 2)))]  # fmt: skip
        recording = Recording(rank, groups)
        recording.compute(5 * MS)
        for group, op in ((1, "all_reduce"), (2, "all_reduce"), (0, "all_to_all_single")):
            done = recording.now + 2 * MS
            recording.wait(*recording.issue(op, group, 4096, done), done)
        recordings.append(recording)
    return build(recordings)


def test_of_seven_groups_four_are_left_for_a_tensor_parallel_pair():
    reduced = reduce_groups(tensor_and_data_parallel(), [0, 1])
    assert (reduced.before, reduced.vanished) == (7, 3)
    left = {group.name: group for group in reduced.left}
    assert sorted(left) == ["dp0", "dp1", "tp0", "world"]
    assert (left["tp0"].kind, left["tp0"].kept) == ("real", [0, 1])
    assert (left["dp1"].kind, left["dp1"].members, left["dp1"].kept) == ("mixed", 4, [1, 3, 7])
    assert [(use.op, use.algorithm, use.pruned) for use in left["dp1"].uses] == [("all_reduce", "ring", True)]
    assert left["world"].kept == list(range(8))  # everybody sends to everybody
    assert not left["world"].uses[0].pruned
    assert (reduced.members, reduced.members_left, reduced.members_kept) == (24, 8 + 2 + 4 + 4, 8 + 2 + 3 + 3)


def test_other_algorithms_have_other_neighbours():
    reduced = reduce_groups(tensor_and_data_parallel(), [0], algorithms={"all_reduce": "recursive_doubling"})
    assert next(group.kept for group in reduced.left if group.name == "dp0") == [0, 2, 4]


@pytest.mark.parametrize(
    ("ranks", "algorithms", "complaint"),
    [
        ([], {}, "a sandbox of no ranks; accepted: at least one"),
        ([8], {}, "sandbox rank 8; accepted: 0 to 7"),
        ([0], {"all_reduce": "star"}, "no algorithm 'star' for all_reduce; accepted: ring"),
        ([0], {"all_join": "ring"}, "operation 'all_join' is not known"),
    ],
)
def test_what_cannot_be_is_refused(ranks, algorithms, complaint):
    with pytest.raises(ValueError, match=complaint):
        reduce_groups(tensor_and_data_parallel(), ranks, algorithms=algorithms)
