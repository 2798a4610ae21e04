"""Memory on the CPU as a recording counts it: the bytes that tensors asked torch's allocator for."""

import gc
import os

import torch
import torch.distributed as dist
import worlds

from prismllm import trace


def _memory(path):
    return trace.load(path).rank(0).memory


def _steps(rank, world):
    import prismllm
    from prismllm import takeover

    takeover.start_rank()
    gc.collect()
    prismllm.iteration()  # each ends a span, and with it a step of the memory
    kept = torch.empty(1000, dtype=torch.float32)
    prismllm.iteration()
    passing = torch.empty(250_000, dtype=torch.float64)
    del passing
    prismllm.iteration()
    view = kept[10:20]  # no memory of its own
    copy = view.clone()
    prismllm.iteration()
    del kept, view, copy
    prismllm.iteration()
    takeover.finish_rank()


def test_bytes_and_peaks_are_exact(tmp_path):
    worlds.run_ranks(1, _steps, environment={"PRISM_RECORD": str(tmp_path)})
    memory = _memory(tmp_path / "rank-0.prism")
    # 1000 float32 stay; 250,000 float64 come and go; 10 float32 are copied; all is released.
    assert memory.bytes.tolist() == [4000, 4000, 4040, 0]
    assert memory.peak.tolist() == [4000, 4000 + 2_000_000, 4040, 4040]


def _child_frees(rank, world):
    from prismllm import takeover

    takeover.start_rank()
    worlds.file_init()
    tensor = torch.empty(1000)
    child = os.fork()
    if child == 0:
        del tensor
        torch.empty(10_000)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
    dist.destroy_process_group()
    takeover.finish_rank()


def test_a_forked_child_counts_nothing_and_writes_nothing(tmp_path):
    worlds.run_ranks(1, _child_frees, environment={"PRISM_RECORD": str(tmp_path)})
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0.prism"]
    assert int(_memory(tmp_path / "rank-0.prism").bytes[-1]) >= 4000
