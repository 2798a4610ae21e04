"""Which ranks of a class `prism time --by-class` times, from what those that it has timed took."""

import pytest
from small_traces import MS, Recording, build

from prismllm import _graph
from prismllm.timing import Took, classes_that_differ
from prismllm.trace import load

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
def split(tmp_path):
    """Of a job whose ranks are one class, of which two have been timed. They took so long [ms]."""

    def of(*timed):
        build([recording(rank, [1] * len(timed[0])) for rank in range(WORLD)]).write(tmp_path / "job.prism")
        fragments = []
        for rank, spans in enumerate(timed):
            fragment = _graph.Builder(WORLD, timed=True, metadata_json="{}")
            fragment.add(recording(rank, spans).record())
            fragments.append(str(tmp_path / f"rank-{rank}.prism"))
            _graph.write(fragment.finish(), fragments[-1].encode())
        took = Took(load(tmp_path / "job.prism"))
        took.add(fragments)
        return classes_that_differ(took, [list(range(WORLD))], 1)

    return of


def test_a_class_whose_members_differ_by_more_than_each_from_itself_is_timed_as_a_whole(split):
    # Rank 1 takes 5 ms longer, each varies by 2.
    assert split([90, 10, 12, 11, 90], [90, 15, 17, 16, 90]) == [[0, 1, 2, 3]]


def test_a_class_whose_members_differ_no_more_than_each_from_itself_stands_for_its_like(split):
    assert split([90, 10, 18, 14, 90], [90, 15, 17, 16, 90]) == []


def test_warm_up_and_what_follows_the_loop_do_not_count(split):
    assert split([10, 10, 12, 11, 10], [90, 10, 12, 11, 500]) == []
