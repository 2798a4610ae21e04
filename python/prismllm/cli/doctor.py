"""prism doctor: is this machine able to?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

import click

from prismllm.cli.common import Output, common_options
from prismllm.units import size

_TORCH = ((2, 11), (2, 15))  # oldest and newest supported
_PYTHON = (3, 10)
_PRIVATE_BYTES_PER_RANK = 15 << 20
_FILES_PER_RANK = 4  # in the coordinator and in the command line


@click.command("doctor", short_help="Whether this machine can run PrismLLM", epilog="Example: prism doctor -n 1024")
@click.option(
    "-n", "world_size", type=click.IntRange(1), default=64, show_default=True, help="Ranks to be able to run."
)
@common_options
def command(output: Output, world_size: int) -> int:
    """Check whether this machine can run PrismLLM. Exit code 1 if something needed is missing."""
    checks = [_run(name, check, world_size) for name, check in _CHECKS]
    output.result({"checks": checks})
    output.table(
        "doctor", [(f"{'ok  ' if check['ok'] else 'FAIL'} {check['name']}", check["detail"]) for check in checks]
    )
    return 0 if all(check["ok"] for check in checks) else 1


def _run(name: str, check: Callable[[int], tuple[bool, str]], world_size: int) -> dict:
    try:
        ok, detail = check(world_size)
    except Exception as failure:  # a check that cannot even run has found something
        ok, detail = False, f"{type(failure).__name__}: {failure}"
    return {"name": name, "ok": ok, "detail": detail}


def _python(_: int) -> tuple[bool, str]:
    wanted = ".".join(map(str, _PYTHON))
    return sys.version_info >= _PYTHON, f"{platform.python_version()} ({wanted} or newer)"


def _torch(_: int) -> tuple[bool, str]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return False, "not installed"
    minor = tuple(int(part) for part in version.split(".")[:2])
    return _TORCH[0] <= minor <= _TORCH[1], f"{version} (2.11 to 2.15 are supported)"


def _modules(_: int) -> tuple[bool, str]:
    """In a process of its own: importing _c10d brings torch in, and a wrong ABI may crash."""
    names = ("_graph", "_replay", "_c10d")
    done = _in_python(f"import torch; import {', '.join(f'prismllm.{name}' for name in names)}")
    said = done.stderr.strip().splitlines()
    return done.returncode == 0, ", ".join(names) if done.returncode == 0 else (said or ["the import crashed"])[-1]


def _in_python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def _memfd(_: int) -> tuple[bool, str]:
    fd = os.memfd_create("prism-doctor")
    try:
        os.ftruncate(fd, 1 << 20)
    finally:
        os.close(fd)
    return True, "shared memory without a name"


def _abstract_socket(_: int) -> tuple[bool, str]:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind("\0prism-doctor-" + secrets.token_hex(8))
        probe.listen()
    return True, "Unix sockets without a file"


def _cores(_: int) -> tuple[bool, str]:
    count = len(os.sched_getaffinity(0))
    return True, f"{count} (that many slots are sensible)"


def _memory(world_size: int) -> tuple[bool, str]:
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    needed = (1 << 30) + world_size * _PRIVATE_BYTES_PER_RANK
    return available >= needed, f"{size(available)} available, {size(needed)} for {world_size} small ranks"


def _open_files(world_size: int) -> tuple[bool, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_PER_RANK * world_size + 256
    limit = "unlimited" if hard == -1 else str(hard)
    return hard == -1 or hard >= needed, f"limit {soft}, may be raised to {limit}; {needed} for {world_size} ranks"


def _processes(world_size: int) -> tuple[bool, str]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    needed = 8 * world_size + 64  # each thread counts
    return soft == -1 or soft >= needed, f"limit {'none' if soft == -1 else soft}; {needed} for {world_size} ranks"


def _disk(_: int) -> tuple[bool, str]:
    import tempfile

    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    return free >= 1 << 30, f"{size(free)} free in {folder}, where run folders go (TMPDIR)"


def _gpu(_: int) -> tuple[bool, str]:
    cards = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    return True, f"{len(cards)} NVIDIA" if cards else "none: programs that ask for nccl are served on cpu"


def _device_swap(_: int) -> tuple[bool, str]:
    """In a process of its own, as it initialises the driver."""
    done = _in_python("import torch; from prismllm import _c10d; print(_c10d.device_swap('', 1).devices())")
    if done.returncode == 0:
        return True, f"viable on {done.stdout.strip()} NVIDIA: ranks may share a device whose memory does not hold all"
    said = done.stderr.strip().splitlines() or ["the driver crashed"]
    return True, f"not viable: {said[-1].removeprefix('OSError: ')}"


def _compiler(_: int) -> tuple[bool, str]:
    found = [name for name in ("g++", "clang++") if shutil.which(name)]
    return True, ", ".join(found) if found else "none (needed to build only)"


_CHECKS = (
    ("python", _python),
    ("torch", _torch),
    ("modules", _modules),
    ("memfd", _memfd),
    ("abstract sockets", _abstract_socket),
    ("cores", _cores),
    ("memory", _memory),
    ("open files", _open_files),
    ("processes", _processes),
    ("disk", _disk),
    ("gpu", _gpu),
    ("device swap", _device_swap),
    ("compiler", _compiler),
)
