"""A rank of `prism bench-comm` that dies or hangs ends it with the cause."""

import contextlib
import os
import re
import signal
import time

import pytest
from faults import LIMIT_S, Run

from prismllm.comm import Point, progress
from prismllm.comm.progress import Progress, Watch
from prismllm.launch.processes import descendants

PAIR = ((0, 1),)


def rank_process(run, rank, folder):
    """The pid of a rank: its standard output is its log."""
    log, end = os.path.join(folder, "logs", f"rank{rank}.out"), time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for pid in descendants(run.pid):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/1") == log:
                    return pid
        time.sleep(0.01)
    raise AssertionError(f"no rank {rank}")


def measuring(tmp_path, **options):
    """bench-comm in its folder `run`, once its ranks have begun to measure."""
    run = Run("bench-comm", "-n", 3, "--op", "all_reduce", "--repeat", 1000, "--run-dir", "run", cwd=tmp_path,
              **options)  # fmt: skip
    begun, end = tmp_path / "run" / "fragments" / "progress", time.monotonic() + LIMIT_S
    while not (begun.exists() and any(begun.read_bytes())):
        assert run.process.poll() is None and time.monotonic() < end, run.error_text()
        time.sleep(0.01)
    return run, rank_process(run, 1, str(tmp_path / "run"))


def test_a_rank_that_is_killed_ends_the_command_with_that(tmp_path):
    run, rank = measuring(tmp_path)
    pids = run.everyone()
    os.kill(rank, signal.SIGKILL)
    assert run.end() == 3
    assert (
        run.error_text() == f"prism: rank 1 was killed by SIGKILL\n(logs of all ranks: {tmp_path / 'run' / 'logs'})\n"
    )
    run.assert_gone(pids)
    assert not (tmp_path / "model.toml").exists()


IMPATIENT = """
from prismllm.comm import progress
progress._PATIENCE_S = 10.0
from prismllm.cli import main
main()
"""


def test_a_rank_that_hangs_ends_the_command_and_is_named_with_its_measurement(tmp_path):
    run, rank = measuring(tmp_path, python=("-c", IMPATIENT))
    pids = run.everyone()
    os.kill(rank, signal.SIGSTOP)
    assert run.end() == 3
    said = run.error_text()
    assert re.match(r"prism: nothing goes on any more: rank 1 was stopped by a signal, at measurement \d+ of \d+ "
                    r"\(all_reduce of \d+ bytes among \d ranks\)\n\(logs of all ranks: ", said), said  # fmt: skip
    run.assert_gone(pids)


def watch(tmp_path, **options):
    ended = []
    points = [Point("send", PAIR, 4), Point("all_reduce", PAIR, 10_000_000)]
    found = Watch(str(tmp_path / "progress"), 2, points, 3, 1000.0, **options)
    found.join(None, lambda: ended.append(True))
    found.on_event({"event": "started", "pids": {"-1": 1, "0": os.getpid(), "1": os.getpid()}})
    return found, [Progress(str(tmp_path / "progress"), rank) for rank in range(2)], ended


def test_a_run_in_which_nothing_goes_on_ends_with_who_is_behind(tmp_path, monkeypatch):
    found, ranks, ended = watch(tmp_path, bits_per_second=1e8)
    now = found.since
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    for _ in range(5):
        ranks[0].step(), ranks[1].step()
    ranks[0].step()
    found.turn()
    # A minute, and eight times what 2 x 4 bytes take.
    assert found.patience_s() == pytest.approx(60, abs=0.1)
    now += 59
    found.turn()
    assert not ended and found.failures() == []
    now += 2
    found.turn()
    found.turn()
    assert ended == [True]
    ((_, failure),) = found.failures()
    assert (
        str(failure)
        == "nothing goes on any more: rank 1 still is at measurement 1 of 2 (send of 4 bytes among 2 ranks)"
    )
    assert failure.exit_code == 3


def test_at_the_deadline_a_measurement_says_how_far_it_has_come(tmp_path, monkeypatch):
    found, ranks, ended = watch(tmp_path)
    at = found.at
    monkeypatch.setattr(progress.time, "monotonic", lambda: at + 1)
    ranks[0].step(), ranks[1].step()
    found.turn()
    assert ended == [True]
    assert str(found.failures()[0][1]) == ("the measurement has not ended within 1000 s: all ranks are at measurement "
                                           "1 of 2 (send of 4 bytes among 2 ranks)")  # fmt: skip


def test_large_messages_and_slow_links_are_waited_for(tmp_path):
    found, ranks, _ = watch(tmp_path, bits_per_second=1e6)
    assert found.patience_s() == 120 + 2  # until all know each other
    for _ in range(6):
        ranks[0].step(), ranks[1].step()
    found.turn()
    assert found.patience_s() == pytest.approx(60 + 8 * 8 * 2 * 1e7 / 1e6)
    assert found.where() == "all ranks are at measurement 2 of 2 (all_reduce of 10000000 bytes among 2 ranks)"
