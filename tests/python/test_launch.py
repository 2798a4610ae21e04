"""A rank under prism cannot tell that it was forked from a warm process instead of started by torchrun."""

import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cold_start

IDENTITY = """
import json, os, sys
names = sorted(k for k in os.environ if k in {names})
print("IDENTITY " + json.dumps(dict(environment={{k: os.environ[k] for k in names}}, argv=sys.argv, name=__name__,
      file=__file__, loader=__loader__.path, path=sys.path[0], main=sys.modules["__main__"].__file__ == __file__,
      spec=__spec__ and __spec__.name)), flush=True)
"""
RANK_VARIABLES = [
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK"),
    *("ROLE_NAME", "ROLE_WORLD_SIZE", "OMP_NUM_THREADS", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
]


@pytest.fixture
def program(tmp_path):
    """Writes a program and returns its path."""

    def write(text, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def record(run_prism):
    """`prism record -n N PROGRAM`, which must succeed; returns what the program printed, without rank prefixes."""

    def run(n, *arguments, **options):
        done = run_prism("record", "--quiet", "-n", n, *arguments, **options)
        assert done.returncode == 0, done.stderr
        return [re.sub(r"^\[\d+\] ", "", line) for line in done.stdout.splitlines()]

    return run


def identities(lines):
    # Wherever in a line: torchrun's workers write into one pipe, and a line's end may come late.
    words = "\n".join(lines).split("IDENTITY ")[1:]
    found = [json.JSONDecoder().raw_decode(word)[0] for word in words]
    return sorted(found, key=lambda one: int(one["environment"]["RANK"]))


def test_environment_arguments_and_main_module_are_those_that_torchrun_gives(program, record, tmp_path):
    path = program(IDENTITY.format(names=RANK_VARIABLES), "folder/program.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    options = {"cwd": tmp_path, "env": environment}
    done = subprocess.run(
        [*torchrun, "folder/program.py", "--lr", "1"], capture_output=True, text=True, timeout=120, **options
    )
    expected = identities(done.stdout.splitlines())
    assert len(expected) == 2, done.stderr
    assert identities(record(2, "folder/program.py", "--lr", "1", **options)) == expected
    assert expected[0]["path"] == str(path.parent)


def test_a_module_is_run_as_python_m_runs_it(program, record, tmp_path):
    program(IDENTITY.format(names=["RANK"]), "package/train.py")
    environment = os.environ | {"RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "package.train", "x"], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert identities(record(1, "-m", "package.train", "x")) == identities(done.stdout.splitlines())


def test_ranks_of_several_nodes_are_numbered_node_by_node(program, record):
    path = program(
        "import os; e = os.environ; print(e['RANK'], e['GROUP_RANK'], e['LOCAL_RANK'], e['LOCAL_WORLD_SIZE'])"
    )
    assert sorted(record(4, "--nproc-per-node", 2, path)) == ["0 0 0 2", "1 0 1 2", "2 1 0 2", "3 1 1 2"]


def test_threads_and_exit_handlers_of_the_program_run_in_order_before_the_rank_ends(program, record):
    path = program("""
import atexit, threading
ended = threading.Event()
atexit.register(lambda: print("first registered, last to run"))
atexit.register(lambda: print("exit handler, the thread has ended:", ended.is_set()))
released = threading.Event()
def work():
    released.wait()
    print("thread"); ended.set()
threading.Thread(target=work).start()
released.set()
print("main ends")
""")
    lines = record(1, path)
    assert lines.index("exit handler, the thread has ended: True") > lines.index("thread")
    assert lines[-1] == "first registered, last to run"


def test_a_rank_may_start_a_run_of_its_own(program, run_prism):
    program("print('inner')", "inner.py")
    outer = program("""
import os, subprocess, sys
subprocess.run([sys.executable, "-m", "prismllm", "record", "--quiet", "-n", "1", "inner.py"], check=True)
""")
    done = run_prism("capture", "--quiet", "-n", 1, outer)
    assert (done.returncode, done.stdout) == (0, "inner\n"), done.stderr


def test_a_rank_leads_a_process_group_and_may_do_without_its_streams(program, record):
    path = program("""
import os, signal, sys
print(os.getpid() == os.getpgid(0) == os.getsid(0), flush=True)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.killpg(0, signal.SIGUSR1)
sys.stdout.close()
sys.stderr = None
""")
    assert record(2, path) == ["True", "True"]


def test_multiprocessing_works_inside_ranks_by_fork_and_by_spawn(program, record):
    path = program("""
import multiprocessing, os
def square(x):
    return x * x
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(4)))
""")
    assert sorted(record(2, path)) == ["fork [0, 1, 4, 9]"] * 2 + ["spawn [0, 1, 4, 9]"] * 2


def test_loader_workers_deliver_every_sample(program, record):
    path = program("""
from torch.utils.data import DataLoader
if __name__ == "__main__":
    print(sum(int(x.sum()) for x in DataLoader(list(range(100)), batch_size=10, num_workers=2)))
""")
    assert record(2, path) == ["4950", "4950"]


def test_ranks_may_initialise_cuda_and_have_their_own_variables(program, record, monkeypatch):
    """Optimizers ask for accelerators at every step; had the zygote's asked the driver, no rank could use one."""
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    path = program("""
import os, torch
names = "PYTORCH_NVML_BASED_CUDA_CHECK", "CUDA_VISIBLE_DEVICES"
print(torch.cuda._is_in_bad_fork(), [os.environ.get(name) for name in names])
""")
    assert record(1, path) == ["False [None, '3,1']"]


def test_random_generators_start_as_in_a_fresh_process(program, record):
    text = """
import random, numpy, torch
print("torch", torch.initial_seed(), torch.rand(3).tolist())
print("random", random.random())
print("numpy", numpy.random.rand())
"""
    lines = record(3, program(text))
    for generator in ("torch", "random", "numpy"):  # seeded by the system, each its own
        assert len({line for line in lines if line.startswith(generator)}) == 3


REHEARSED = """
import logging, os, sys, warnings
import torch, torch.distributed as dist
from prismllm.launch import rehearsal
def environment():  # the variable is torch._dynamo's, by its import alone
    return {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
def state():
    world, c10d = dist.distributed_c10d._world, dist.distributed_c10d
    return [dist.is_initialized(), dist.get_debug_level(), world.group_count,
            c10d._default_pg_init_method, getattr(c10d, "_backend", None), dict(world.pg_names), dict(world.pg_map),
            dict(world.tags_to_pg), dist.Backend.backend_list, torch.is_grad_enabled(), sys.excepthook,
            environment(), warnings.filters[:], logging.root.manager.disable, torch.get_default_dtype()]
before, completed, scene = state(), [], rehearsal._data_parallel
rehearsal._data_parallel = lambda: (scene(), completed.append(1))
rehearsal.rehearse()
print(len(completed), state() == before, open("/proc/self/status").read().split("Threads:")[1].split()[0])
"""


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_what_is_rehearsed_before_the_ranks_exist_leaves_torch_as_it_was(debug):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISTRIBUTED_DEBUG": debug}
    environment["TORCH_DIST_INIT_BARRIER"] = "1"
    command = [sys.executable, "-c", REHEARSED]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.split() == ["1", "True", "1"], done.stderr


def test_a_run_adds_nothing_to_the_environment_and_leaves_nothing_in_the_temporary_folder(program, record, tmp_path):
    (tmp_path / "tmp").mkdir()
    path = program(
        "import os\nprint(os.environ.get('TORCHINDUCTOR_CACHE_DIR'), 'TORCH_DIST_INIT_BARRIER' in os.environ)"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "TORCH_DIST_INIT_BARRIER": "1"}
    environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
    assert record(2, path, env=environment) == ["None True"] * 2
    assert os.listdir(tmp_path / "tmp") == []


def test_a_path_with_a_dot_and_the_globals_are_those_of_python(program, record, tmp_path):
    path = program("print(__file__, sorted(globals()))")
    command = [sys.executable, f"./{path.name}"]
    fresh = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert record(1, f"./{path.name}") == fresh.stdout.splitlines()


def test_tensors_on_a_mesh_are_those_of_their_own_rank(program, run_prism):
    """torch caches results by mesh and shape, and what it cached before the ranks existed would be rank 0's."""
    path = program("""
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
mesh = init_device_mesh("cpu", (2,))
whole = distribute_tensor(torch.arange(8.0), mesh, [Replicate()])
copy = whole.detach().clone()
part = copy.redistribute(placements=[Shard(0)]).to_local()
print(dist.get_rank(), copy.device_mesh is mesh, part.tolist())
dist.destroy_process_group()
""")
    done = run_prism("capture", "--quiet", "-n", 2, path)
    assert sorted(re.sub(r"^\[\d+\] ", "", line) for line in done.stdout.splitlines()) == [
        "0 True [0.0, 1.0, 2.0, 3.0]",
        "1 True [4.0, 5.0, 6.0, 7.0]",
    ]


def test_modules_of_the_user_are_imported_by_each_rank_and_not_before_it_exists(program, record):
    program("import os\nrank = int(os.environ['RANK'])\n", "settings.py")
    path = program("import settings\nprint(settings.rank)")
    assert sorted(record(3, path)) == ["0", "1", "2"]


def test_a_users_module_named_like_an_installed_package_wins_as_it_does_in_python(program, record):
    program("name = 'mine'", "plotly.py")
    path = program("import plotly\nprint(plotly.name)")
    assert record(1, path) == ["mine"]


def test_the_store_s_port_is_taken_by_nobody_before_rank_0_listens_on_it(program, record):
    path = program(
        """
import os, socket
import torch.distributed as dist
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "1":
    with socket.socket() as stranger:
        try:
            stranger.bind(address)
            print("bound")
        except OSError:
            print("reserved")
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""
    )
    assert record(2, path) == ["reserved"]


def test_ranks_hold_no_descriptors_of_the_launcher_and_read_an_empty_input(program, record):
    path = program("""
import os, sys
names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
links = [os.readlink(name) for name in names if os.path.islink(name)]
print([link for link in links if link.startswith(("pipe:", "socket:"))], repr(sys.stdin.read()))
""")
    assert record(2, path) == ["[] ''"] * 2


def test_a_package_that_starts_a_thread_when_imported_is_left_to_the_ranks(tmp_path):
    """In a process of its own, with a folder that counts as installed."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "restless.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    (tmp_path / "train.py").write_text("try:\n    import restless, json\nexcept ImportError:\n    pass\n")
    code = f"""
import site, sys
sys.path.append({str(tmp_path / "site")!r}); site.getsitepackages = lambda: [{str(tmp_path / "site")!r}]
from prismllm.launch.program import Program
from prismllm.launch.warm import NotSingleThreaded, preload
program = Program({str(tmp_path / "train.py")!r})
print(preload(program, frozenset(["restless"])), "restless" in sys.modules)
try:
    preload(program, frozenset())
except NotSingleThreaded as reason:
    print(reason.module)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['json'] False", "restless"], done.stderr


def test_output_is_marked_with_ranks_only_where_several_print(program, run_prism):
    quiet = ("record", "--quiet", "-n", 2)
    one = program("import os\nif os.environ['RANK'] == '1': print('only me'); print('twice')")
    assert run_prism(*quiet, one).stdout == "only me\ntwice\n"
    both = program("""
import torch.distributed as dist
dist.init_process_group("gloo")
for turn in range(2):
    if turn == dist.get_rank():
        print("hello\\nagain")
    dist.barrier()
""")
    assert run_prism(*quiet, both).stdout.splitlines() == ["hello", "again", "[1] hello", "[1] again"]


def test_log_dir_keeps_each_ranks_output_apart(program, run_prism, tmp_path):
    path = program("import os, sys; print('out', os.environ['RANK']); print('err', file=sys.stderr)")
    done = run_prism("record", "--quiet", "-n", 2, "--log-dir", "logs", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "logs" / "rank1.out").read_text() == "out 1\n"
    assert (tmp_path / "logs" / "rank0.err").read_text() == "err\n"
