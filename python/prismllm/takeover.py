"""PrismLLM in the place of torch.distributed's backends, so that a program runs under `prism` without an edit.

The launcher sets PRISM_ROUTE (real or capture), PRISM_COORDINATOR (its socket's name), PRISM_RECORD (a directory),
PRISM_BACKEND (a name) and what prismllm.memory reads, and calls start_rank() and finish_rank() around the program;
under plain torchrun the autoload entry point does it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys

_route: str | None = None  # installed: real or capture
_started = False
_finished = False
_rank = 0
_owner = 0  # process that start_rank() ran in; its children are not ranks
_notes: list[str] = []
group_timeout = None  # of process groups under capture, in the place of the program's own: a datetime.timedelta
answering = None  # of a rank that runs alone: prismllm.inputs.answering.Answering


def notes() -> list[str]:
    """What the user should know about this run, for example that nccl was served on the CPU."""
    return list(_notes)


def rank() -> int:
    """Of this process in the job, as the launcher numbers them."""
    return _rank


def note(text: str) -> None:
    if text not in _notes:
        _notes.append(text)


def route() -> str:
    return _route or "real"


def wanted_backend() -> str:
    """The backend that serves the program whatever it asks for (`prism record --backend`); "": what it asks for."""
    return os.environ.get("PRISM_BACKEND", "")


def is_rank_process() -> bool:
    """Whether this process is the rank itself, and not a child of it (a data loader's worker, a spawned rank)."""
    return _owner in (0, os.getpid())


def register_prism() -> None:
    """Makes backend="prism" known, without taking over any other name."""
    from prismllm import creators

    creators.register("prism")


def install(route: str) -> None:
    """From now on the program's process groups are ours, whatever backend it asks for."""
    global _route
    if route not in ("real", "capture"):
        raise ValueError(f"PRISM_ROUTE is '{route}'; accepted: real, capture")
    if _route is not None:
        if _route != route:
            raise ValueError(f"PRISM_ROUTE is '{route}', but this process already uses '{_route}'")
        return
    import torch.distributed as dist

    _route = route
    if not dist.is_available():
        return
    from prismllm import creators, futures

    creators.take_over(capture=route == "capture")
    futures.install()
    if route == "capture":
        from prismllm import rendezvous

        rendezvous.install()


def start_rank(
    program: list[str] | None = None, rules: list | None = None, timed: bool = False, quick: bool = True
) -> None:
    """Once per rank process, before the program: joins the capture (waits for a slot) and starts the recording.

    `program` is the program and its arguments as the user wrote them; by default the process's command line. With
    `rules`, however few, the rank runs alone. `timed`: its own spans are what they are on the machine, and with `quick`
    it is told real numbers that are made up, where no rule is for them."""
    global _started, _owner, _rank, answering
    if _started:
        return
    route = os.environ.get("PRISM_ROUTE") or "real"
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    install(route)
    from prismllm import _c10d, memory, optimizers

    _started, _owner, _rank = True, os.getpid(), rank
    os.environ["PRISM_RANK_PROCESS"] = str(_owner)
    os.register_at_fork(after_in_child=_forget)
    if route == "capture":
        address = os.environ.get("PRISM_COORDINATOR")
        if not address:
            raise ValueError("PRISM_COORDINATOR is not set; under capture it names the coordinator's socket")
        _watch_device_use()
        _c10d.connect(address, rank, world_size)
        if rules is not None:
            from prismllm.inputs.answering import Answering

            answering = Answering(rules, rank, world_size, quick=timed and quick)
            answering.start()
    if directory := os.environ.get("PRISM_RECORD"):
        os.makedirs(directory, exist_ok=True)
        _c10d.install_cpu_allocator()
        _c10d.start_recorder(
            rank=rank,
            world_size=world_size,
            path=os.fsencode(os.path.join(directory, f"rank-{rank}.prism")),
            timed=route == "real" or _c10d.is_emulated(),
            progress_model=_progress_model(),
            metadata=json.dumps(_metadata(route, program)),
            clock="slot" if not timed else "own" if rules is None else "wall",
            memory_limit=memory.limit_bytes(),
        )
        memory.start(rank)
        optimizers.watch()
    elif memory.limit_bytes() is not None:
        raise ValueError("PRISM_MEMORY_LIMIT is set, but not PRISM_RECORD; memory is counted where a rank is recorded")


def finish_rank(error_text: str = "") -> None:
    """Writes the recording and leaves the capture; with the program's traceback where it failed."""
    global _finished
    if not _started or _finished or os.getpid() != _owner:
        return
    _finished = True
    from prismllm import _c10d

    try:
        if _c10d.recording():
            _c10d.finish_recorder()
    except Exception as failure:
        error_text = error_text or f"the recording could not be written: {failure}"
        raise
    finally:
        _c10d.finish(error_text)


def autostart(route: str) -> None:
    """start_rank() by `import torch`, for launchers other than ours; in a child of a rank only the take-over."""
    if "PRISM_RANK_PROCESS" in os.environ:
        global _owner
        _owner = int(os.environ["PRISM_RANK_PROCESS"])
        if _owner != os.getpid():
            if route == "capture":
                install(route)
            return
    os.environ.setdefault("PRISM_ROUTE", route)
    start_rank()
    atexit.register(finish_rank)


def check_may_create_group() -> bool:
    """Whether a process group that is being made is ours to serve. False: the program's helper processes keep torch's
    own backend. Raises where a rank of the capture has started ranks of its own."""
    if is_rank_process():
        return True
    if route() != "capture" or "torch.distributed.checkpoint._async_process_executor" in sys.modules:
        return False
    raise RuntimeError(
        "prism capture: this process was started by a rank's process and makes a process group of its own. A program "
        "that starts its ranks itself (mp.spawn, subprocess) cannot be captured: give prism the part that one rank "
        "runs, as one would give it to torchrun."
    )


def _watch_device_use() -> None:
    """The coordinator swaps processes that have state on a device, and no others."""
    import torch

    from prismllm import _c10d

    with contextlib.suppress(Exception):  # what torch does when CUDA is initialised is not its public interface
        torch.cuda._lazy_call(_c10d.note_device_use)


def _forget() -> None:
    """In a forked child of a rank."""
    from prismllm import _c10d

    _c10d.abandon()


def _progress_model() -> str:
    from prismllm import creators

    backend = wanted_backend() or ("nccl" if creators.accelerator() else "gloo")
    return backend if backend in ("gloo", "nccl") else "conservative"


def _metadata(route: str, program: list[str] | None) -> dict:
    import platform

    import torch

    return {
        # Words of a command line may be any bytes, which JSON cannot hold.
        "program": [word.encode(errors="backslashreplace").decode() for word in program or sys.orig_argv],
        "route": route,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
