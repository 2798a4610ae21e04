"""Taking the place of torch.distributed's backends: what a program sees, and what it must not notice."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import worlds

from prismllm import takeover, trace

PYTHON_FOLDER = str(Path(takeover.__file__).parents[1])  # where the package under test lies


def python(code, **environment):
    """Runs code in a fresh interpreter with the package on its path."""
    variables = {**os.environ, "PYTHONPATH": PYTHON_FOLDER, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _answers(rank, world, name, under_prism):
    if under_prism:
        takeover.start_rank()
    worlds.file_init(name)
    group = dist.new_group([0, 1])
    out = {
        "backend": dist.get_backend(),
        "of a group": dist.get_backend(group),
        "default": dist.distributed_c10d.Backend.default_device_backend_map,
        "config": dist.distributed_c10d.get_backend_config(),
        "devices": sorted(device.type for device in dist.group.WORLD._device_types),
        "type": dist.group.WORLD._get_backend(torch.device("cpu")).name(),
    }
    dist.barrier()
    dist.destroy_process_group()
    return out, takeover.notes()


@pytest.mark.parametrize("name", ["gloo", "cpu:gloo", None])
def test_a_program_sees_what_it_would_see_without_us(name):
    plain = worlds.run_ranks(2, _answers, name, False)
    ours = worlds.run_ranks(2, _answers, name, True)
    assert ours == plain


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
@pytest.mark.parametrize("name", ["nccl", "cpu:gloo,cuda:nccl"])
def test_nccl_without_a_gpu_is_served_on_the_cpu_and_noted(name):
    for answers, notes in worlds.run_ranks(2, _answers, name, True):
        assert answers["backend"] == name
        assert answers["devices"] == ["cpu", "cuda"]
        assert any("nccl" in note and "CPU" in note for note in notes)


def _one_instance(rank, world):
    takeover.start_rank()
    worlds.file_init("cpu:gloo,cuda:nccl")
    group = dist.group.WORLD
    same = group._get_backend(torch.device("cpu")) is group._get_backend(torch.device("cuda"))
    dist.barrier()
    dist.destroy_process_group()
    return same


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
def test_both_devices_reach_one_instance():
    assert worlds.run_ranks(2, _one_instance) == [True, True]


def _other_backend(rank, world):
    import torch.testing._internal.distributed.fake_pg  # registers "fake"

    takeover.start_rank()
    worlds.file_init("gloo")
    names = dist.get_backend(), dist.group.WORLD._get_backend(torch.device("cpu")).inner.name()
    dist.destroy_process_group()
    return names


def test_the_user_may_choose_another_backend_than_the_program():
    assert worlds.run_ranks(1, _other_backend, environment={"PRISM_BACKEND": "fake"}) == [("gloo", "fake")]


def _ddp_logs(rank, world):
    takeover.start_rank()
    worlds.file_init("gloo")
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for _ in range(3):  # the logger looks at the backend in the second iteration
        ddp(torch.ones(1, 2)).sum().backward()
    data = ddp._get_ddp_logging_data()
    dist.barrier()
    dist.destroy_process_group()
    return data["world_size"]


def test_ddps_logger_does_not_take_us_for_gloo():
    assert worlds.run_ranks(2, _ddp_logs) == [2, 2]


def _debug_detail(rank, world):
    dist.init_process_group("gloo")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.item()


def test_debug_mode_detail_starts_no_gloo_under_capture():
    code = """
        import worlds, test_takeover
        answers, error = worlds.capture(2, test_takeover._debug_detail)
        assert error is None, error
        print(answers)
    """
    tests = str(Path(__file__).parent)
    out = python(code, TORCH_DISTRIBUTED_DEBUG="DETAIL", PYTHONPATH=f"{PYTHON_FOLDER}:{tests}")
    assert out.splitlines()[-1] == "[2.0, 2.0]"


def _spawner(rank, world):
    dist.init_process_group("gloo")
    code = "import torch.distributed as dist; dist.init_process_group('gloo')"
    code = f"import torch; from prismllm import _autoload; _autoload.autoload(); {code}"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    dist.destroy_process_group()
    return child.returncode, child.stderr.strip().splitlines()[-1]


def test_a_rank_that_starts_ranks_itself_gets_one_clear_error(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PYTHON_FOLDER)
    answers, error = worlds.capture(1, _spawner)
    assert error is None
    code, line = answers[0]
    assert code == 1
    assert line.startswith("RuntimeError: prism capture: this process was started by a rank's process")


def test_the_autoload_entry_point_does_nothing_outside_prism():
    code = """
        import sys, torch
        from prismllm import _autoload
        _autoload.autoload()
        import torch.distributed as dist
        creators = {name: plugin.creator_fn for name, plugin in dist.distributed_c10d.Backend._plugins.items()}
        ours = [name for name, creator in creators.items() if "prismllm" in repr(creator) and name != "PRISM"]
        print("prismllm._c10d" in sys.modules, ours)
    """
    assert python(code, RANK="0") == "False []"


def test_the_autoload_entry_point_never_breaks_import_torch():
    code = """
        import torch
        from prismllm import _autoload
        _autoload.autoload()
        print("still here")
    """
    assert python(code, PRISM_ROUTE="nonsense", RANK="0", WORLD_SIZE="1") == "still here"


def test_importing_prismllm_does_not_import_torch():
    assert python("import sys, prismllm; prismllm.iteration(); print('torch' in sys.modules)") == "False"


def test_a_program_under_torchrun_is_recorded_by_an_environment_variable(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        textwrap.dedent("""
            import torch
            from prismllm import _autoload
            _autoload.autoload()  # what an installed package's entry point does
            import torch.distributed as dist
            dist.init_process_group()
            dist.all_reduce(torch.ones(3))
            dist.barrier()
            dist.destroy_process_group()
        """)
    )
    recordings = tmp_path / "recordings"
    environment = {**os.environ, "PYTHONPATH": PYTHON_FOLDER, "PRISM_RECORD": str(recordings), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        recorded = trace.load(recordings / f"rank-{rank}.prism").rank(rank)
        assert recorded.is_op("all_reduce").sum() == 1
        assert recorded.is_op("barrier").sum() == 1


def _other_questions(rank, world):
    dist.init_process_group("gloo")
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    answers = [
        backend.supports_shrinking,
        backend.supports_tensor_alloc(torch.device("cpu")),
        getattr(group, "supports_window", None),
    ]
    backend._enable_collectives_timing() if hasattr(backend, "_enable_collectives_timing") else None
    for question in (
        lambda: backend.mem_allocator,
        lambda: backend.allocate_tensor(4, dtype=torch.float32, device=torch.device("cpu")),
        group._wait_for_pending_works,
        lambda: group._register_on_completion_hook(print),
    ):
        try:
            answers.append(question())
        except Exception as error:
            answers.append((type(error).__name__, str(error).splitlines()[0]))
    dist.destroy_process_group()
    return answers


def test_a_backends_other_questions_are_answered_as_gloo_answers_them():
    of_gloo = worlds.run_ranks(1, _other_questions)
    answers, error = worlds.capture(1, _other_questions)
    assert error is None
    assert answers == of_gloo
