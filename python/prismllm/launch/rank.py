"""A forked rank: from the fork to its end, which is that of a fresh `python program.py`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback

from prismllm.launch.namespace import enter
from prismllm.launch.options import LaunchOptions, RunFolder, partial
from prismllm.launch.processes import die_with_parent, fine_timers, private_bytes
from prismllm.launch.steady import become_steady, before_others, sleep_punctually
from prismllm.launch.warm import reseed


def become_child(zygote: int, log_prefix: str) -> None:
    """What every child of the zygote does first. Logs are files: a full pipe could block whoever writes to it."""
    die_with_parent(zygote)
    os.setsid()  # as under torchrun: what a program does to its process group is done to itself alone
    signal.set_wakeup_fd(-1, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log_prefix + ".out", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, log_prefix + ".err", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    # By lines, so that people see them as they come and a killed rank's last lines are kept.
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    gc.enable()


def write_status(path: str, **values) -> None:
    with open(partial(path), "w") as file:
        json.dump(values, file)
    os.replace(partial(path), path)


def run_rank(options: LaunchOptions, rank: int, environment: dict[str, str]) -> int:
    """Runs the program; returns the exit code of the process, which must end right after with os._exit."""
    os.environ.update(options.environment)
    os.environ.update(environment)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reseed()
    if (threads := options.environment.get("OMP_NUM_THREADS", "1").partition(",")[0]).isdigit() and int(threads) > 1:
        import torch

        torch.set_num_threads(int(threads))
    status = RunFolder(options.run_dir).rank_status(rank)
    pid = os.getpid()
    from prismllm import takeover
    from prismllm.memory import figures

    ended: dict = {}
    try:
        if options.namespaces:
            enter(options.namespaces[rank])
        if options.steady:
            become_steady()
        if options.timed or options.sandbox is not None:
            fine_timers()
            sleep_punctually()
        if options.sandbox is not None:
            before_others()
        if str(rank) in options.units:
            from prismllm.emulation.units import move_to

            move_to(**options.units[str(rank)])
        if options.terminal:
            from prismllm import debugging

            debugging.serve(rank, *options.terminal, RunFolder(options.run_dir).debugger_turn)
        takeover.start_rank(options.program.words, options.rules, options.timed, options.quick)
    except Exception:
        code, error = 1, traceback.format_exc()
        ended["internal"] = True
    else:
        code, error = _run_program(options)
    if os.getpid() != pid:  # a child that the program has forked: no rank, only another Python that ends
        return _end_child(code, error)
    # Of the program: what exit handlers and the writing of the recording take comes when others have ended.
    memory: dict = {"memory": figures()}
    if rank % _measured_stride(options.world_size) == 0:
        memory["private_bytes"], memory["peak_private_bytes"] = private_bytes()
    if error is None and code != 0:
        error = f"exited with code {code}"
    if takeover.answering and "internal" not in ended:
        code, error = _of_rank_alone(takeover.answering, code, error)
        ended["alone"] = {"asked": takeover.answering.asked, "lacks_key": takeover.answering.lacks_key}
    ended |= {"time_ns": time.monotonic_ns(), "error": error, "notes": takeover.notes()}
    if error is not None:  # first of all: peers may wait for this rank
        write_status(status, **ended)
        with contextlib.suppress(Exception):  # the error above comes first
            takeover.finish_rank(error)
    threading._shutdown()
    atexit._run_exitfuncs()
    if error is None and takeover.answering and takeover.answering.failure:  # of an exit handler
        code, error = _of_rank_alone(takeover.answering, code, error)
        ended["error"] = error
        with contextlib.suppress(Exception):
            takeover.finish_rank(error)
    if error is None:
        try:
            takeover.finish_rank("")
        except Exception as failure:
            ended.update(error=f"could not finish its recording: {failure}", internal=True)
            code = 1
    if takeover.answering:
        try:
            takeover.answering.write(RunFolder(options.run_dir).rank_answers(rank))
        except OSError as failure:
            if not ended["error"]:
                ended.update(error=f"could not tell who answered it: {failure}", internal=True)
                code = 1
    write_status(status, **ended, **memory)
    _flush()
    return code


def _of_rank_alone(answering, code: int, error: str | None) -> tuple[int, str | None]:
    """A rule that failed comes first, also where the program has hidden it; any other failure with what the rank has
    been told."""
    if answering.failure:
        return code or 1, answering.failure
    return code, error if error is None else f"{error.rstrip()}\n{answering.last_words()}"


def _measured_stride(ranks: int) -> int:
    """The system needs some 20 ms to count a process's memory: of more than 128 ranks, some 64 are measured. An odd
    stride, so that they are not all of one place in a tensor parallel group."""
    return 1 if ranks <= 128 else ranks // 64 | 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed it, or put another in its place
            stream.flush()


def _end_child(code: int, error: str | None) -> int:
    if error is not None:
        print(error, end="", file=sys.stderr)
    threading._shutdown()
    atexit._run_exitfuncs()
    _flush()
    return code


def _run_program(options: LaunchOptions) -> tuple[int, str | None]:
    """(exit code, traceback if there is one)."""
    try:
        options.program.run()
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return (leave.code or 0) & 0xFF, None
        print(leave.code, file=sys.stderr)
        return 1, None
    except BaseException as failure:
        if not sys.excepthook.__module__.startswith(("sys", "torch.")):  # the program's own
            try:
                sys.excepthook(type(failure), failure, failure.__traceback__)
            except BaseException as another:
                another.__context__ = None  # is told anyway
                print(_traceback(another), end="", file=sys.stderr)
        return 1, _traceback(failure)
    return 0, None


def _traceback(failure: BaseException) -> str:
    """As Python prints it, without the frames that lie below the program (all of them, for a SyntaxError in it)."""
    frames = failure.__traceback__
    own = os.path.dirname(__file__)
    while frames and (os.path.dirname(frames.tb_frame.f_code.co_filename) == own or _is_runner(frames)):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(failure), failure, frames))


def _is_runner(frames) -> bool:
    return "runpy" in frames.tb_frame.f_code.co_filename
