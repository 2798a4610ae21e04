"""Of ranks that run alone and are alike one runs for all: found from the program's groups, checked by a sample, and the
trace is that of all ranks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prismllm
from prismllm.replay import replay
from prismllm.solo.grid import Grid, Group
from prismllm.solo.plan import Plan
from prismllm.trace import diff


def grid_of(*sizes, extra=()):
    """Ranks numbered with the first axis fastest, groups made axis by axis, each from one line of the program."""
    world = 1
    for size in sizes:
        world *= size
    groups, stride = [Group("0", tuple(range(world)), "init")], 1
    for axis, size in enumerate(sizes):
        for first in (rank for rank in range(world) if rank // stride % size == 0):
            members = tuple(first + position * stride for position in range(size))
            groups.append(Group(str(len(groups)), members, f"axis {axis}"))
        stride *= size
    return Grid(world, [*groups, *extra])


# --- the grid


def test_groups_made_in_one_place_and_without_common_ranks_are_a_dimension():
    grid = grid_of(2, 3, 4)
    assert [len(dimension.groups) for dimension in grid.dimensions] == [12, 8, 6]
    assert grid.coordinates(0) == (0, 0, 0) and grid.coordinates(23) == (1, 2, 3)
    assert grid.line(0, 1) == (0, 2, 4) and grid.line(7, 2) == (1, 7, 13, 19)


def test_one_line_of_a_program_may_make_several_dimensions():
    rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]
    grid = Grid(4, [Group(str(i), members, "same line") for i, members in enumerate(rows + columns)])
    assert [[group.members for group in dimension.groups] for dimension in grid.dimensions] == [rows, columns]
    assert grid.coordinates(2) == (0, 1)


def test_groups_of_some_ranks_only_are_no_axis_but_tell_ranks_apart():
    ends = Group("ends", (0, 12), "embedding")
    grid = grid_of(4, 4, extra=[ends])
    assert len(grid.axes) == 2
    assert grid.group_sizes(0) == grid.group_sizes(12) == (4, 4, 2) and grid.group_sizes(1) == (4, 4, 0)


def test_a_rank_in_anothers_place_has_the_groups_and_neighbours_of_its_place():
    grid = grid_of(2, 3, 4)  # tensor, data, pipeline; the pipeline's neighbours are 6 ranks apart
    group_of = {(axis, rank): grid.dimensions[axis].of_rank[rank][0].key for axis in range(3) for rank in range(24)}
    model, rank = 6, 17  # stages 1 and 2
    like = grid.like(model, rank, ["0", group_of[0, model], group_of[2, model]], [0, 12], ["relative"] * 2)
    assert like == (["0", group_of[0, rank], group_of[2, rank]], [11, 23])
    assert grid.like(0, 4, [], [18, 6], ["relative"] * 2) == (
        [],
        [22, 10],
    )  # from the first stage to the last, in a ring
    assert grid.like(6, 12, [], [0], ["fixed"]) == ([], [0])  # a fixed root
    assert grid.like(0, 1, ["unknown"], [], []) is None


# --- the plan


def planned(grid, truth, verify):
    """(the outcome, how many ran) where ranks with equal truth(rank) are alike."""

    def alike(model, rank):
        return () if truth(model) == truth(rank) else None

    plan = Plan(grid, alike, lambda model, rank, way: True, verify)
    while batch := plan.batch():
        assert len(set(batch)) == len(batch)
    assert plan.done.isdisjoint(plan.outcome.like)
    assert plan.done | set(plan.outcome.like) == set(range(grid.world_size))
    assert set(plan.outcome.like.values()) <= plan.done
    return plan.outcome, len(plan.done)


def wrong(grid, truth, outcome):
    return [rank for rank, model in outcome.like.items() if truth(rank) != truth(model)]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_position_on_the_pipeline_matters_where_structure_changes_and_replicas_are_one(sizes, data):
    """Ends of an axis may differ from its middle, as the first and last stages of a pipeline do."""
    grid = grid_of(*sizes)
    kinds = data.draw(st.lists(st.sampled_from(["all", "first", "last", "both", "each"]), min_size=len(sizes)))

    def truth(rank):
        place = []
        for kind, size in zip(kinds, sizes, strict=False):
            rank, at = divmod(rank, size)
            ends = {"all": 0, "first": at == 0, "last": at == size - 1, "each": at}
            place.append(ends.get(kind, (at == 0) + 2 * (at == size - 1)))
        return tuple(place)

    outcome, _ = planned(grid, truth, verify=0)
    assert wrong(grid, truth, outcome) == []


@given(st.data())
def test_what_no_axis_explains_is_found_by_the_sample(data):
    grid = grid_of(2, 4, 4)
    odd = data.draw(st.sets(st.integers(0, 31), min_size=1, max_size=3))
    outcome, _ = planned(grid, lambda rank: rank in odd, verify=grid.world_size)
    assert wrong(grid, lambda rank: rank in odd, outcome) == []


def test_a_thousand_replicas_take_few_runs():
    grid = grid_of(8, 64, 16)
    outcome, ran = planned(grid, lambda rank: (rank // 512 == 0, rank // 512 == 15), verify=None)
    assert ran < 100 and len(outcome.like) == 8192 - ran
    assert outcome.verified >= 3 * 16


@pytest.mark.parametrize(
    "special",
    [
        lambda tensor, replica, stage: stage == 15 and replica == 0,
        lambda tensor, replica, stage: stage == 15 and replica > 31 and tensor > 0,
        lambda tensor, replica, stage: stage == 7 and tensor % 2 == 1,
    ],
)
def test_a_class_that_is_none_is_divided_where_it_differs(special):
    """What some ranks do beside what their stage does, and no line through rank 0 shows."""
    grid = grid_of(8, 64, 16)

    def truth(rank):
        tensor, replica, stage = rank % 8, rank // 8 % 64, rank // 512
        return stage == 0, stage == 15, special(tensor, replica, stage)

    outcome, ran = planned(grid, truth, verify=None)
    assert wrong(grid, truth, outcome) == [] and outcome.split and ran < 200


def test_a_world_without_further_groups_is_one_line():
    outcome, ran = planned(Grid(64, [Group("0", tuple(range(64)), "init")]), lambda rank: rank == 0, verify=None)
    assert wrong(None, lambda rank: rank == 0, outcome) == [] and ran < 25


def test_ranks_whose_groups_cannot_be_said_run():
    grid = grid_of(4)
    plan = Plan(grid, lambda *_: (), lambda model, rank, way: rank != 2, verify=0)
    ran = []
    while batch := plan.batch():
        ran += batch
    assert 2 in ran


# --- captures

JOB = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
odd = int(sys.argv[1]) if len(sys.argv) > 1 else -1
stages, replicas = 4, world // 4
rows = [dist.new_group(range(s * replicas, (s + 1) * replicas)) for s in range(stages)]
columns = [dist.new_group(range(r, world, replicas)) for r in range(replicas)]
alone = [dist.new_group([r]) for r in range(world)]
stage, replica = divmod(rank, replicas)
told = torch.zeros(1, dtype=torch.int64)
dist.all_reduce(told)
for _ in range(2):
    x = torch.ones(8)
    if stage > 0:
        dist.recv(x, rank - replicas)
    if stage < stages - 1:
        dist.send(x, rank + replicas)
    dist.all_reduce(x, group=rows[stage])
    dist.broadcast(x, src=replica, group=columns[replica])
    if rank == odd or told.item():
        dist.all_reduce(x, group=alone[rank])
"""


@pytest.fixture
def captured(run_prism, tmp_path):
    def capture(*options, world=24, arguments=(), program=JOB):
        (tmp_path / "job.py").write_text(program)
        name = f"{len(list(tmp_path.iterdir()))}"
        out = ("-o", f"{name}.prism", "--json", f"{name}.json")
        done = run_prism("capture", "-n", world, "--slots", 2, *out, *options, "job.py", *arguments)
        assert done.returncode == 0, done.stderr
        return prismllm.load(tmp_path / f"{name}.prism"), json.loads((tmp_path / f"{name}.json").read_text())["inputs"]

    return capture


def test_one_of_each_class_gives_the_trace_of_all(captured):
    every, all_ran = captured("--inputs", "builtin", "--classes", "none")
    few, ran = captured("--inputs", "builtin", "--verify", "1")
    assert all_ran["ranks"] == 24 and ran["ranks"] < 14 and ran["split"] == []
    assert diff(every, few) == (True, None)
    few.validate()  # every collective has its members, every message its other end
    assert few.class_count == every.class_count == 3
    not_run = [rank for rank in range(24) if not few.graph.has_own_times(rank)]
    assert len(not_run) == 24 - ran["ranks"]
    replayed = replay(few)  # with the times and the memory of those that are like them
    assert [one.peak_memory_bytes for one in replayed.ranks] == [one.peak_memory_bytes for one in replay(every).ranks]
    assert f"{len(not_run)} ranks did not run" in replayed.notes[-1]


def test_a_rank_unlike_its_class_splits_it(captured):
    every, _ = captured("--inputs", "builtin", "--classes", "none", arguments=["8"])
    few, ran = captured("--inputs", "builtin", "--verify", "24", arguments=["8"])
    assert len(ran["split"]) == 1
    assert diff(every, few) == (True, None)


def test_classes_by_name(captured, tmp_path):
    (tmp_path / "rules.py").write_text("from prismllm import inputs\ninputs.classes(lambda rank: rank // 6)\n")
    few, ran = captured("--inputs", "rules.py", "--verify", "0")
    assert ran["ranks"] == 4
    few.validate()
    assert diff(captured("--inputs", "builtin", "--classes", "none")[0], few) == (True, None)


def test_ranks_with_rules_of_their_own_are_no_replicas(captured, tmp_path):
    (tmp_path / "rules.py").write_text(
        "from prismllm import inputs\ninputs.rule('told', dtype='int64', rank=(8, 16)).peers(1)\n"
    )
    every, _ = captured("--inputs", "rules.py", "--classes", "none")
    few, ran = captured("--inputs", "rules.py", "--verify", "0")
    assert ran["ranks"] < 24 and diff(every, few) == (True, None)


ALTERNATING = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
dist.all_reduce(torch.ones(4))
if rank % PERIOD == 0:
    dist.send(torch.ones(5), rank + 1)
elif rank % PERIOD == 1:
    dist.recv(torch.zeros(5), rank - 1)
dist.all_reduce(torch.ones(4))
dist.send(torch.ones(2), 0) if rank else [dist.recv(torch.ones(2), other) for other in range(1, world)]
"""


@pytest.mark.parametrize("period", [2, 5])
def test_what_every_few_ranks_do_is_not_taken_for_what_all_do(captured, period):
    """And what all send to one has a fixed end, beside neighbours that go with the rank."""
    program = ALTERNATING.replace("PERIOD", str(period))
    every, _ = captured("--inputs", "builtin", "--classes", "none", world=30, program=program)
    few, _ = captured("--inputs", "builtin", "--verify", "0", world=30, program=program)
    few.validate()
    assert diff(every, few) == (True, None)


def test_a_large_job_takes_a_handful_of_runs(captured):
    trace, ran = captured("--inputs", "builtin", world=1024)
    assert trace.world_size == 1024 and ran["ranks"] < 70
    trace.validate()
