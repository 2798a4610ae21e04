"""Which ranks of a class `prism time --by-class` times, from what those that it has timed took."""

import json

import pytest
from small_traces import MS, Recording, build

from prismllm import _graph
from prismllm.launch import LaunchOptions, Program, RunFolder
from prismllm.timing.running import Slices

WORLD = 4


def recording(rank, spans_ms):
    """Iterations in which a rank computes that long and meets the others; the loop's end is no iteration."""
    r = Recording(rank, [("default_pg", list(range(WORLD)))])
    for span in spans_ms:
        r.mark()
        r.compute(round(span * MS))
        r.wait(*r.issue("all_reduce", 0, 4096, r.now), r.now)
    return r


@pytest.fixture
def slices(tmp_path):
    """Of a job whose ranks are one class, of which two are timed first. These took so long [ms], as do the others."""

    def of(*timed):
        build([recording(rank, [1] * len(timed[0])) for rank in range(WORLD)]).write(tmp_path / "job.prism")
        folder = RunFolder(str(tmp_path / "run"))
        folder.create()
        for rank, spans in enumerate([*timed, *timed]):
            fragment = _graph.Builder(WORLD, timed=True, metadata_json="{}")
            fragment.add(recording(rank, spans).record())
            _graph.write(fragment.finish(), f"{folder.fragments}/rank-{rank}.prism".encode())
        options = LaunchOptions("capture", WORLD, Program("train.py"), folder.path, folder.logs, slots=2,
                                slices=[[0, 1]], members_of_class=[[0, 1, 2, 3]], warm_up=1,
                                timed_trace=str(tmp_path / "job.prism"))  # fmt: skip
        running = Slices(options)
        batches = [running.batch()]
        while batches[-1]:
            batches.append(running.batch())
        folder.close()
        with open(folder.classes) as file:
            return batches[:-1], json.load(file)["split"]

    return of


def test_a_class_whose_members_differ_by_more_than_each_from_itself_is_timed_as_a_whole(slices):
    # Rank 1 takes 5 ms longer, each varies by 2.
    assert slices([90, 10, 12, 11, 90], [90, 15, 17, 16, 90]) == ([[0, 1], [2, 3]], [0])


def test_a_class_whose_members_differ_no_more_than_each_from_itself_stands_for_its_like(slices):
    assert slices([90, 10, 18, 14, 90], [90, 15, 17, 16, 90]) == ([[0, 1]], [])


def test_warm_up_and_what_follows_the_loop_do_not_count(slices):
    assert slices([10, 10, 12, 11, 10], [90, 10, 12, 11, 500]) == ([[0, 1]], [])
