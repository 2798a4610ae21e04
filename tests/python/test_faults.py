"""Whatever happens to a run, it ends by itself with one clear reason and leaves no process, file or memory behind."""

import os
import resource
import signal
import subprocess
import sys

import pytest
from faults import LIMIT_S, Run

# Two ranks that know each other; each has a worker process of its own, and one of those has left its session. They say
# so and wait for what is done to them: rank 1 in a collective that rank 0 never joins, or asleep.
WAITING = """
import os, subprocess, sys, threading
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
worker = subprocess.Popen([sys.executable, "-c", "import time; print('worker up', flush=True); time.sleep(1000)"],
                          start_new_session=rank == 1)
print(f"rank{rank}={os.getpid()} ready", flush=True)
MORE
if rank == 1:
    dist.all_reduce(torch.ones(1))
threading.Event().wait()
"""
ROUTES = {"record": ["record", "-n", 2], "capture": ["capture", "-n", 2, "--slots", 2]}


@pytest.fixture(params=ROUTES)
def waiting(request, tmp_path):
    """A run whose ranks and their workers are up."""
    run = start(tmp_path, ROUTES[request.param], WAITING.replace("MORE", ""))
    run.wait_for(" ready", 2)
    run.wait_for("worker up", 2)
    yield run
    run.process.kill()


def start(tmp_path, route, text, **options) -> Run:
    (tmp_path / "program.py").write_text(text)
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return Run(*route, "-o", "out.prism", "program.py", cwd=tmp_path, env=environment, **options)


def report_of(tmp_path, statement) -> str:
    """What a capture says whose program fails at this statement."""
    run = start(tmp_path, ROUTES["capture"], WAITING.replace("MORE", statement))
    assert run.end() == 3
    return run.error_text()


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def everything_gone(run: Run, pids: list[int], tmp_path) -> None:
    run.assert_gone(pids)
    assert not (tmp_path / "out.prism").exists()
    assert not [name for name in os.listdir(tmp_path) if name.startswith((".prism", "out.prism"))]


@pytest.mark.alone  # whose shared memory it is that is there does not show
def test_a_killed_rank_ends_the_run_and_is_named(waiting, tmp_path):
    before, pids = shared_memory(), waiting.everyone()
    os.kill(waiting.named("rank1"), signal.SIGKILL)
    assert waiting.end() == 3
    assert "rank 1 was killed by SIGKILL" in waiting.error_text()
    everything_gone(waiting, pids, tmp_path)
    assert shared_memory() <= before


def test_a_killed_zygote_ends_the_run(waiting, tmp_path):
    pids = waiting.everyone()
    os.kill(waiting.zygote(), signal.SIGKILL)
    assert waiting.end() == 4
    assert "the zygote was killed by SIGKILL" in waiting.error_text()
    everything_gone(waiting, pids, tmp_path)


@pytest.mark.parametrize(
    ("number", "report"),
    [
        (signal.SIGTERM, "the zygote was ended by SIGTERM"),
        (signal.SIGINT, "the zygote was killed by SIGINT"),
        (signal.SIGSTOP, "the zygote was stopped by a signal"),
    ],
)
def test_a_signal_to_the_zygote_ends_the_run_and_is_named(waiting, tmp_path, number, report):
    pids = waiting.everyone()
    os.kill(waiting.zygote(), number)
    assert waiting.end() == 4
    assert waiting.error_text().startswith(f"prism: {report}\n(logs of all ranks")
    everything_gone(waiting, pids, tmp_path)


def test_a_signal_that_the_command_was_started_to_ignore_is_ignored(tmp_path):
    """As nohup and shells do it. SIGTERM ends it then."""

    def ignore():
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    run = start(tmp_path, ROUTES["record"], WAITING.replace("MORE", ""), preexec_fn=ignore)
    run.wait_for(" ready", 2)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(run.pid, number)
    assert run.end() == 143


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_the_trace_is_written_keeps_the_recordings_and_leaves_no_trace(tmp_path, number, code):
    (tmp_path / "program.py").write_text("")
    driver = f"""
import os
from prismllm import cli
from prismllm.cli import fragments
fragments.merge_run = lambda *_: os.kill(os.getpid(), {number:d})
cli.main(["record", "--quiet", "-n", "1", "program.py"])
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", driver]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == code
    assert done.stderr.startswith("prism: ended by a signal (fragments and logs are kept in "), done.stderr
    folder = done.stderr.split("kept in ")[1].split(")")[0]
    assert os.listdir(os.path.join(folder, "fragments")) == ["rank-0.prism"]
    assert not (tmp_path / "program.prism").exists()


def test_the_second_ctrl_c_ends_a_run_whose_output_nobody_reads_any_more(tmp_path):
    run = start(tmp_path, ["record", "-n", 1], "while True: print('x' * 1000)")
    run.wait_for("x")
    pids = run.everyone()
    for _ in range(2):
        os.kill(run.pid, signal.SIGINT)
        with open(f"/proc/{run.pid}/status") as status:
            while any(line.startswith("ShdPnd") and int(line.split()[1], 16) & 2 for line in status.readlines()):
                status.seek(0)
    assert run.end() == 130
    run.assert_gone(pids)


def test_killing_the_command_itself_leaves_nobody(waiting, tmp_path):
    pids = waiting.everyone()
    os.kill(waiting.pid, signal.SIGKILL)
    assert waiting.end() == -signal.SIGKILL
    everything_gone(waiting, pids, tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_command_is_a_clean_end(waiting, tmp_path, number, code):
    pids = waiting.everyone()
    os.kill(waiting.pid, number)
    assert waiting.end() == code
    assert waiting.error_text().startswith(f"prism: ended by {number.name}\n")
    everything_gone(waiting, pids, tmp_path)


def test_a_killed_coordinator_ends_the_run(tmp_path):
    run = start(tmp_path, ROUTES["capture"], WAITING.replace("MORE", ""))
    run.wait_for(" ready", 2)
    pids = run.everyone()
    ranks = {run.named("rank0"), run.named("rank1")}
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.zygote())], capture_output=True, text=True)
    (coordinator,) = set(map(int, children.stdout.split())) - ranks
    os.kill(coordinator, signal.SIGKILL)
    assert run.end() == 4
    assert "the coordinator was killed by SIGKILL" in run.error_text()
    everything_gone(run, pids, tmp_path)


@pytest.mark.parametrize("route", ROUTES)
def test_ctrl_c_while_torch_is_being_imported_ends_at_once(tmp_path, route):
    """The zygote exists and has not said anything yet."""
    run = start(tmp_path, ROUTES[route], "")
    while not (pids := run.everyone()[1:]):
        assert run.process.poll() is None, run.error_text()
    os.kill(run.pid, signal.SIGINT)
    assert run.end() == 130
    run.assert_gone(pids)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("statement", "report"),
    [
        ("if rank == 0: raise ValueError('loss is nan')", "rank 0 failed:\nTraceback"),
        ("if rank == 0: sys.exit(7)", "rank 0 exited with code 7"),
        ("if rank == 0: sys.exit('no data')", "rank 0 exited with code 1"),
        ("if rank == 0: os.abort()", "rank 0 was killed by SIGABRT"),
        ("if rank == 0: os._exit(5)", "rank 0 exited with code 5"),
        ("if rank == 0: os._exit(0)", "rank 0 left before its program's end"),
        ("if rank == 0: os.execv('/bin/true', ['true'])", "rank 0 left before its program's end"),
    ],
)
def test_a_rank_that_fails_while_another_waits_is_the_reason_given(tmp_path, route, statement, report):
    text = WAITING.replace("MORE", statement)
    run = start(tmp_path, ROUTES[route], text)
    run.wait_for(" ready", 2)
    assert run.end() == 3
    assert report in run.error_text()
    if "raise" in statement:
        lines = run.error_text().splitlines()
        assert "ValueError: loss is nan" in lines and lines.count("Traceback (most recent call last):") == 1
        assert f'  File "{tmp_path}/program.py", line {1 + text.splitlines().index(statement)}, in <module>' in lines
    assert not (tmp_path / "out.prism").exists()


@pytest.mark.parametrize("text", ["def f(:", "x = 1\0", "# coding: klingon", "raise KeyboardInterrupt"])
def test_what_python_says_of_a_program_is_all_that_is_shown(tmp_path, text):
    run = start(tmp_path, ["record", "-n", 1], text)
    assert run.end() == 3
    assert "SyntaxError: " in run.error_text() or "KeyboardInterrupt" in run.error_text()
    assert "prismllm/launch" not in run.error_text()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise ValueError", "threading.Event().wait()"])
def test_shared_memory_and_semaphores_of_a_killed_program_are_removed(tmp_path, end):
    text = f"""
import multiprocessing, os, threading
from multiprocessing.shared_memory import SharedMemory
memory, lock = SharedMemory(create=True, size=64), multiprocessing.get_context("spawn").Lock()
print(f"{{memory.name}} and {{lock._semlock.name[1:]}} are up", flush=True)
{end}
"""
    run = start(tmp_path, ["record", "-n", 1], text)
    run.wait_for("are up")
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() in (3, 143)
    memory, _, semaphore, *_ = run.text.decode().split()
    assert not {memory, f"sem.{semaphore}"} & shared_memory()


def test_an_exception_hook_that_fails_hides_neither_error(tmp_path):
    text = "import sys\ndef hook(*_): raise ValueError('in the hook')\nsys.excepthook = hook\nraise KeyError('first')"
    run = start(tmp_path, ["record", "-n", 1], text)
    assert run.end() == 3
    assert "ValueError: in the hook" in run.error_text() and "KeyError: 'first'" in run.error_text()
    assert "prismllm/launch" not in run.error_text()


def test_a_forked_child_that_comes_to_the_programs_end_does_not_speak_for_its_rank(tmp_path):
    text = """
import os
if os.fork() == 0:
    raise ValueError("in the child")
print("child ended with", os.waitstatus_to_exitcode(os.wait()[1]))
os._exit(0)
"""
    run = start(tmp_path, ["record", "-n", 1], text)
    run.wait_for("child ended with 1")
    assert run.end() == 3
    assert "ValueError: in the child" in run.error_text()
    assert "rank 0 left before its program's end" in run.error_text()


def test_a_rank_that_leaves_early_without_an_error_is_missed_by_name(tmp_path):
    report = report_of(tmp_path, "if rank == 0: sys.exit(0)")
    assert "rank 1 in all_reduce" in report and "missing rank 0 (has finished)" in report


def test_a_collective_that_one_rank_never_joins_is_reported_with_who_is_missing(tmp_path):
    report = report_of(tmp_path, "if rank == 0: dist.recv(torch.empty(1), 1)")
    assert "deadlock" in report and "rank 0 in recv from rank 1" in report
    assert "rank 1 in all_reduce" in report and "missing rank 0 (waits in recv from rank 1" in report


def test_members_that_disagree_are_both_named(tmp_path):
    report = report_of(tmp_path, "dist.all_reduce(torch.ones(3 + rank))")
    for rank, size in ((0, 3), (1, 4)):
        assert f"rank {rank} calls all_reduce(float32, sum, shape [{size}]" in report


def test_a_program_that_starts_its_ranks_itself_gets_one_clear_error(tmp_path):
    text = """
import torch.distributed as dist, torch.multiprocessing as mp
def work(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29501", rank=rank, world_size=2)
if __name__ == "__main__":
    mp.start_processes(work, nprocs=2, start_method="fork")
"""
    run = start(tmp_path, ["capture", "-n", 1], text)
    assert run.end() == 3
    assert "starts its ranks itself" in run.error_text()


def test_a_stopped_rank_is_a_fault_under_capture(tmp_path):
    run = start(tmp_path, ROUTES["capture"], WAITING.replace("MORE", ""))
    run.wait_for(" ready", 2)
    pids = run.everyone()
    os.kill(run.named("rank0"), signal.SIGSTOP)
    assert run.end() == 3
    assert "rank 0 was stopped by SIGSTOP" in run.error_text()
    everything_gone(run, pids, tmp_path)


def test_a_failed_run_keeps_its_logs_and_names_their_folder_and_a_good_one_keeps_nothing(tmp_path):
    run = start(tmp_path, ["record", "-n", 1], "print('before'); raise SystemExit(3)")
    assert run.end() == 3
    folder = run.error_text().split("(logs of all ranks: ")[1].split(")")[0]
    with open(os.path.join(folder, "rank0.out")) as file:
        assert file.read() == "before\n"
    os.mkdir(tmp_path / "good")
    run = start(tmp_path / "good", ["record", "-n", 1], "print('fine')")
    assert run.end() == 0
    assert not [name for name in os.listdir(tmp_path / "good" / "tmp") if name.startswith("prism")]


@pytest.mark.parametrize(
    ("limit", "report"),
    [
        ((resource.RLIMIT_FSIZE, 1 << 14), "no address space is left for the ranks' windows: File too large"),
        ((resource.RLIMIT_AS, 1 << 29), "the zygote exited with code 1: "),
        ((resource.RLIMIT_NOFILE, 9), "Too many open files"),
    ],
)
def test_what_the_system_refuses_is_said_in_one_line(tmp_path, limit, report):
    number, value = limit
    run = start(tmp_path, ROUTES["capture"], "", preexec_fn=lambda: resource.setrlimit(number, (value, value)))
    assert run.end() == 4
    first, *rest = run.error_text().splitlines()
    assert report in first and len(rest) <= 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
class TestFullDisk:
    """In a mount namespace of its own, with a tiny file system where space runs out."""

    @staticmethod
    def run_with_mount(tmp_path, where, kilobytes, command):
        script = f'mount -t tmpfs -o size={kilobytes}k none "{where}" && exec "$@"'
        (tmp_path / "tmp").mkdir(exist_ok=True)
        environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
        unshare = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "prismllm"]
        options = {"cwd": tmp_path, "env": environment, "timeout": 120}
        return subprocess.run([*unshare, *command], capture_output=True, text=True, **options)

    @pytest.fixture(autouse=True)
    def may_unshare(self):
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
            pytest.skip("no mount namespaces here")

    def test_a_disk_that_fills_up_is_our_failure_and_the_fragments_are_kept(self, tmp_path):
        (tmp_path / "small").mkdir()
        (tmp_path / "program.py").write_text("""
import os
filler = os.open("small/filler", os.O_WRONLY | os.O_CREAT)
try:
    while os.write(filler, b"x" * 4096):
        pass
except OSError:
    print("no space left")
""")
        command = ["record", "-n", "1", "-o", "small/out.prism", "program.py"]
        done = self.run_with_mount(tmp_path, tmp_path / "small", 64, command)
        assert done.returncode == 4, done.stderr
        assert "out.prism" in done.stderr and "kept in" in done.stderr
        folder = done.stderr.split("kept in ")[1].split(")")[0]
        assert os.listdir(os.path.join(folder, "fragments")) == ["rank-0.prism"]

    @pytest.mark.parametrize(("route", "what"), [("record", "could not"), ("capture", "could not write")])
    def test_a_run_folder_without_room_is_our_failure_and_says_so(self, tmp_path, route, what):
        (tmp_path / "program.py").write_text("print('fine')")
        done = self.run_with_mount(tmp_path, tmp_path / "tmp", 16, [route, "--quiet", "-n", "2", "program.py"])
        assert done.returncode == 4, done.stderr
        assert what in done.stderr and "Traceback" not in done.stderr

    def test_capture_needs_no_room_in_dev_shm(self, tmp_path):
        (tmp_path / "program.py").write_text(
            "import torch, torch.distributed as d; d.init_process_group('gloo'); x = torch.ones(1 << 20);"
            "d.all_reduce(x); print('sum', int(x[0]))"
        )
        done = self.run_with_mount(tmp_path, "/dev/shm", 4, ["capture", "--quiet", "-n", "2", "program.py"])
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("sum 2") == 2
