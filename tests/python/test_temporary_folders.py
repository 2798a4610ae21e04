"""What a command that was killed leaves in the temporary folder, the next one removes; nothing else ever is."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest
from faults import Run

from prismllm.launch import temporary
from prismllm.launch.temporary import TemporaryFolder, remove_left_over

WAITING = "import threading; print('up', flush=True); threading.Event().wait()"
COMMANDS = {
    "record": ("record", "-n", 2, "-o", "out.prism", "program.py"),
    "capture": ("capture", "-n", 2, "--slots", 2, "-o", "out.prism", "program.py"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary folder, of this process and of those that it starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def left_by_a_killed_process(place, what="test") -> str:
    program = f"""
import os, signal
from prismllm.launch.temporary import TemporaryFolder
folder = TemporaryFolder({what!r})
os.makedirs(os.path.join(folder.path, "logs"))
open(os.path.join(folder.path, "logs", "rank0.out"), "w").close()
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    return done.stdout.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_next_command_removes_what_a_killed_one_has_left(place, tmp_path, run_prism, command):
    (tmp_path / "program.py").write_text(WAITING)
    run = Run(*COMMANDS[command], cwd=tmp_path)
    run.wait_for("up", 2)
    pids = run.everyone()
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    run.assert_gone(pids)
    (left,) = os.listdir(place)
    assert left.startswith("prism-")
    (tmp_path / "program.py").write_text("")
    assert run_prism("record", "-n", 1, "-o", "next.prism", "program.py").returncode == 0
    assert os.listdir(place) == []


def test_a_folder_whose_owner_lives_stays(place):
    with TemporaryFolder("test") as path:
        remove_left_over()
        with TemporaryFolder("test"):
            assert sorted(os.listdir(place))[0].startswith("prism-test-") and len(os.listdir(place)) == 2
        assert os.path.isdir(path)
    assert os.listdir(place) == []


def test_a_folder_that_is_kept_stays(place):
    folder = TemporaryFolder("test")
    folder.keep()
    folder.remove()
    remove_left_over()
    assert os.listdir(folder.path) == []


def test_what_is_not_ours_stays(place):
    (place / "prism-test-abcdefgh").mkdir()  # without an owner's mark
    (place / "prism-test-abcdefgh" / "file").touch()
    for name in ("other-test-abcdefgh", "prism-test-ABCDEFGH", "prism-test-abcdefghi"):
        (place / name).mkdir()
        (place / name / ".owner").touch()
    left = left_by_a_killed_process(place)
    os.rename(left, place / "elsewhere")
    (place / "prism-test-link1234").symlink_to(place / "elsewhere")
    (place / "prism-test-fifo1234").mkdir()
    os.mkfifo(place / "prism-test-fifo1234" / ".owner")
    before = sorted(os.listdir(place))
    remove_left_over()
    assert sorted(os.listdir(place)) == before
    assert (place / "elsewhere" / "logs" / "rank0.out").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user takes root")
def test_what_is_another_users_stays(place):
    left = left_by_a_killed_process(place)
    os.chown(left, 12345, 12345)
    remove_left_over()
    assert os.path.exists(os.path.join(left, "logs", "rank0.out"))
    os.chown(left, 0, 0)
    remove_left_over()
    assert not os.path.exists(left)


def test_one_that_is_taken_for_left_over_before_it_is_locked_is_made_again(place, monkeypatch):
    taken = []

    def flock(fd, how):
        if not taken:  # another run comes between the mark and the lock
            taken.append(os.readlink(f"/proc/self/fd/{fd}"))
            monkeypatch.setattr(fcntl, "flock", lambda *_: None)
            temporary._remove(os.path.dirname(taken[0]))

    monkeypatch.setattr(fcntl, "flock", flock)
    with TemporaryFolder("test") as path:
        assert taken and os.path.dirname(taken[0]) != path
        assert os.listdir(place) == [os.path.basename(path)]
