"""PyTorch's own tests of torch.distributed, which ship in its wheel, as judge: none passes on stock Gloo and fails
under prism, recorded on the real backend or captured on one slot.

A test that fails under prism is run on stock Gloo; if it fails there as well, or torch skips it, it says nothing."""

import contextlib
import datetime
import os
import unittest

import pytest
import torch.distributed as dist
import torch_cases
import worlds
from torch.testing._internal.common_distributed import TEST_SKIPS
from torch.testing._internal.distributed import distributed_test

WORLD = torch_cases.WORLD
SKIP_TEXTS = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}
# What we know to differ from Gloo, and why it must.
DIFFERENT = {
    "test_ddp_logging_data_cpu": "DDP's logger names a backend by its type, and would cast ours to Gloo's class if it "
    "were of that type"
}


def _on_gloo(rank, world, name, backend="gloo"):
    """Why the test was skipped, or None."""
    distributed_test.BACKEND = backend
    os.environ["TEMP_DIR"] = os.environ["PRISM_TEST_FOLDER"]
    case = torch_cases.Case(name, rank)
    dist.init_process_group(backend, init_method=case.init_method, rank=rank, world_size=world)
    try:
        getattr(torch_cases.Case, name)(case)
    except unittest.SkipTest as skip:
        _let_others_connect()
        return str(skip)
    except SystemExit as leave:
        _let_others_connect()
        return SKIP_TEXTS.get(leave.code, f"left with code {leave.code}")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return None


def _let_others_connect():
    """To a rank that leaves at once: Gloo's ranks that still connect to it would fail."""
    with contextlib.suppress(Exception):
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))


def _under_prism(rank, world, name):
    from prismllm import takeover

    takeover.start_rank()
    skipped = _on_gloo(rank, world, name, torch_cases.NAME)
    takeover.finish_rank()
    return skipped


def _run(route, name, folder):
    if route == "record":
        return worlds.run_ranks(WORLD, _under_prism, name, environment={"PRISM_RECORD": str(folder)})
    skipped, error = worlds.capture(WORLD, _on_gloo, name, torch_cases.NAME, environment={"PRISM_RECORD": str(folder)})
    if error:
        raise worlds.RankFailed(error)
    return skipped


def _names():
    for name in unittest.defaultTestLoader.getTestCaseNames(torch_cases.Case):
        method = getattr(torch_cases.Case, name)
        marks = []
        if getattr(method, "__unittest_skip__", False):
            marks.append(pytest.mark.skip(reason=method.__unittest_skip_why__))
        elif name in DIFFERENT:
            marks.append(pytest.mark.xfail(reason=DIFFERENT[name], strict=True))
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("route", ["record", "capture"])
@pytest.mark.parametrize("name", list(_names()))
def test_what_passes_on_gloo_passes_under_prism(name, route, tmp_path):
    try:
        skipped = _run(route, name, tmp_path)
    except worlds.RankFailed as failure:
        try:
            worlds.run_ranks(WORLD, _on_gloo, name)
        except worlds.RankFailed:
            pytest.skip("fails on stock Gloo, too")
        raise failure
    if all(skipped):
        pytest.skip(skipped[0])
