"""Tensors beyond the memory budget wait on a disk, and a full disk is one clear error."""

import json
import os
import shutil
import tempfile

import pytest

# A ring of sums: what each rank gets is known from arithmetic.
SUMS = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
world = dist.get_world_size()
for step in range(3):
    values = torch.arange(int(sys.argv[1]) << 18, dtype=torch.float32) + dist.get_rank() + step
    dist.all_reduce(values)
    assert values[5] == sum(5 + rank + step for rank in range(world)), values
print("sums are right")
dist.destroy_process_group()
"""


def capture(run_prism, tmp_path, mebibytes, *options, **process):
    (tmp_path / "sums.py").write_text(SUMS)
    command = ["capture", "--quiet", "--json", "out.json", "-n", 3, "--memory-budget", "2M", *options]
    return run_prism(*command, "sums.py", mebibytes, **process)


def test_a_job_whose_tensors_exceed_the_budget_ends_as_it_would_have(run_prism, tmp_path, repository):
    # The repository lies on a disk; temporary folders may be in memory.
    with tempfile.TemporaryDirectory(dir=repository / "build", prefix="spill-test-") as on_disk:
        done = capture(run_prism, tmp_path, 8, "--spill-dir", on_disk)
        assert os.listdir(on_disk) == []
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sums are right") == 3
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["spilled_bytes_peak"] >= 3 * 8 << 20
    assert summary["staged_bytes_peak"] <= 2 << 20


def test_a_full_disk_is_told_with_what_is_needed(run_prism, tmp_path, small_disk):
    done = capture(run_prism, tmp_path, 12, "--spill-dir", small_disk)
    assert done.returncode == 3
    assert "reserving 12582912 bytes of disk: No space left on device" in done.stderr
    assert "(--memory-budget 2097152) and 12582912 on disk (--spill-dir), 12582912 more are needed" in done.stderr
    assert not (tmp_path / "sums.prism").exists()
    assert os.listdir(small_disk) == ["lost+found"]
    assert shutil.disk_usage(small_disk).free > 12 << 20  # what was there is given back


@pytest.fixture
def folder_in_memory():
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no file system in memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="prism-test-") as folder:
        yield folder


def test_a_folder_that_cannot_hold_what_is_spilled_is_refused_at_once(run_prism, tmp_path, folder_in_memory):
    done = capture(run_prism, tmp_path, 1, "--spill-dir", folder_in_memory)
    assert done.returncode == 4
    complaint = f"cannot be staged in '{folder_in_memory}': it is in memory itself, and not on a disk"
    assert complaint in done.stderr
    assert not done.stdout


def test_without_a_disk_the_budget_is_a_limit(run_prism, tmp_path, folder_in_memory):
    done = capture(run_prism, tmp_path, 8, env=os.environ | {"TMPDIR": folder_in_memory})
    assert done.returncode == 3
    assert "raise --memory-budget, or name a folder on a disk with --spill-dir" in done.stderr
