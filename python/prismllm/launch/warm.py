"""Everything slow that every rank would do again, done once before the ranks exist.

Forked without this, 64 ranks each import torch._dynamo at their first optimizer step: 60 s and 124 MB each, instead
of 1.7 s and 10 MB."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import random
import sys
import types
import weakref
from collections.abc import Callable

from prismllm.launch.processes import thread_names
from prismllm.launch.program import Program, is_installed
from prismllm.launch.rehearsal import rehearse

_LAZY = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch.distributed.optim",
    "torch.nn.parallel",
    "torch.utils.checkpoint",
    "torch.utils.data",
)
_MANY = 128  # ranks, for which preparing the memory takes less time than it saves


class NotSingleThreaded(Exception):
    """Importing `module` started threads, and a process with threads cannot be forked safely."""

    def __init__(self, module: str):
        super().__init__(f"importing {module} starts threads ({', '.join(thread_names()[1:])})")
        self.module = module


def accelerator_visible() -> bool:
    """Without asking the driver: a process that has initialised CUDA cannot be forked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return False
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd")


@contextlib.contextmanager
def driver_unasked():
    """While it lasts, torch.cuda.is_available() (which optimizers ask as well) looks through NVML in the place of the
    driver: asking that initialises CUDA, and a process that is forked then cannot use it."""
    before = dict(os.environ)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if not accelerator_visible():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # where NVML finds nothing, torch would ask the driver after all
    try:
        yield
    finally:
        for name in ("PYTORCH_NVML_BASED_CUDA_CHECK", "CUDA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@contextlib.contextmanager
def _environment_as_it_was(run_dir: str):
    """torch._dynamo makes a folder for what it will compile as soon as it is imported, in the user's temporary folder,
    and says where in the environment. While this lasts the folder is one of the run's."""
    before = dict(os.environ)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(run_dir, "inductor"))
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def warm_torch(run_dir: str) -> None:
    """Imports torch and what it imports lazily, and takes some steps of training."""
    with _environment_as_it_was(run_dir):
        _warm_torch()


def _warm_torch() -> None:
    import torch

    for module in _LAZY:
        with contextlib.suppress(ImportError):  # absent in this version of torch
            importlib.import_module(module)
    layer = torch.nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1), torch.optim.AdamW(layer.parameters())]
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    if torch.distributed.is_available() and not accelerator_visible():
        rehearse()


def preload(program: Program, skip: frozenset[str]) -> list[str]:
    """Compiles the program and imports the installed packages that it imports at top level; returns their names."""
    program.compile()
    loaded = []
    for module, names in program.imports():
        if module in skip or not is_installed(module, program.search_path):
            continue
        # A failure is the program's own affair: the ranks meet it where the program can handle it.
        with contextlib.suppress(Exception, SystemExit):
            __import__(module, fromlist=names)
            loaded.append(module)
        if len(thread_names()) > 1:
            raise NotSingleThreaded(module)
    return loaded


def settle(ranks: int) -> Callable[[], None]:
    """Last before the forks: what exists now belongs to the zygote. A rank's collector never looks at it, and a rank
    does not finalize it at its exit (torch's operator libraries alone would cost each rank 34 MB of copied pages).
    Returns what to call before the zygote's own exit."""
    from prismllm import _c10d

    gc.collect()
    cleanups = _nanobind_cleanups()
    for cleanup in cleanups:
        atexit.unregister(cleanup)
    gc.freeze()
    _c10d.fill_heaps()
    if ranks >= _MANY:
        _c10d.use_huge_pages()
    finalizers = [finalizer for finalizer in list(weakref.finalize._registry) if finalizer.atexit]
    for finalizer in finalizers:
        finalizer.atexit = False

    def take_back() -> None:
        for finalizer in finalizers:
            finalizer.atexit = True
        for cleanup in cleanups:
            atexit.register(cleanup)

    return take_back


def _nanobind_cleanups() -> list[types.FunctionType]:
    """Exit handlers of native modules (Triton's) that only empty typing's caches, so that nanobind does not count what
    they hold as leaked: 900 copied pages in each rank."""
    return [
        thing
        for thing in gc.get_objects()
        if type(thing) is types.FunctionType
        and thing.__name__ == "cleanup"
        and thing.__code__.co_filename == "<internal>"
    ]


def reseed() -> None:
    """In a forked rank: the random generators that a fresh process seeds from the system, torch's among them."""
    random.seed()
    sys.modules["torch"].random.default_generator.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
