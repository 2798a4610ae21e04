"""Route real: under prism, every collective gives what plain Gloo gives, bit for bit, recorded or not."""

import collectives
import pytest
import torch
import torch.distributed as dist
import worlds

WORLD = 4


def _under_prism(rank, world, name="gloo"):
    from prismllm import takeover

    takeover.start_rank()
    out = collectives.job(rank, world, name)
    takeover.finish_rank()
    return out


@pytest.mark.parametrize("name", ["gloo", "nccl", "prism", "cpu:gloo,cuda:nccl"])
def test_collectives_are_those_of_gloo(of_gloo, name):
    answers = worlds.run_ranks(WORLD, _under_prism, name)
    for rank in range(WORLD):
        assert collectives.differences(of_gloo[rank], answers[rank]) == []


def test_collectives_are_those_of_gloo_while_recorded(of_gloo, tmp_path):
    answers = worlds.run_ranks(WORLD, _under_prism, environment={"PRISM_RECORD": str(tmp_path)})
    for rank in range(WORLD):
        assert collectives.differences(of_gloo[rank], answers[rank]) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"rank-{rank}.prism" for rank in range(WORLD)]


def _mirrors(rank, world):
    from datetime import timedelta

    from prismllm import _c10d, takeover

    takeover.start_rank()
    worlds.file_init("gloo", timeout=timedelta(seconds=77))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert isinstance(backend, _c10d.PrismBackend)
    before = backend._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.zeros(1))
    answers = {
        "name": backend.name(),
        "coalescing": backend.supports_coalescing,
        "splitting": backend.supports_splitting,
        "timeout": backend.options._timeout.total_seconds(),
        "sequence": backend._get_sequence_number_for_group() - before,
        "of the inner backend": callable(backend._set_default_timeout),
        "rank": backend.rank(),
    }
    with pytest.raises(AttributeError, match="no_such_thing"):
        backend.no_such_thing  # noqa: B018
    dist.barrier()
    dist.destroy_process_group()
    return answers


def test_the_backend_shows_what_gloo_shows():
    for rank, answers in enumerate(worlds.run_ranks(2, _mirrors)):
        assert answers == {
            "name": "gloo",
            "coalescing": False,
            "splitting": True,
            "timeout": 77.0,
            "sequence": 3,
            "of the inner backend": True,
            "rank": rank,
        }


def _mismatch(rank, world):
    from prismllm import takeover

    takeover.start_rank()
    worlds.file_init("gloo")
    with pytest.raises((RuntimeError, ValueError), match="BAND"):
        dist.all_reduce(torch.zeros(2), dist.ReduceOp.BAND)  # not of floats
    dist.barrier()
    dist.destroy_process_group()


def test_gloos_own_errors_come_through():
    worlds.run_ranks(2, _mismatch)
