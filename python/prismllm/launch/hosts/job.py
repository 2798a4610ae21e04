"""What the head tells an agent to run, and what has to be the same on both hosts."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from prismllm.launch.options import LaunchOptions
from prismllm.launch.outcome import LaunchError
from prismllm.launch.program import Program


@dataclass
class Means:
    """What this host gives."""

    slots: int
    memory_budget_bytes: int = 0
    spill_dir: str = ""


def own_versions() -> dict[str, str]:
    """What has to be the same on all hosts."""
    import platform
    from importlib import metadata

    return {
        "prismllm": metadata.version("prismllm"),
        "torch": metadata.version("torch").partition("+")[0],
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def program_digest(options: LaunchOptions) -> str | None:
    """Of the program's file, so that two hosts do not run two versions of it; None where a module has none."""
    if (path := options.program.path) is None:
        return None
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def job_of(options: LaunchOptions, digest: str | None) -> dict:
    """What every agent needs to know."""
    return {
        "program": {"name": options.program.name, "is_module": options.program.is_module, "args": options.program.args},
        "digest": digest,
        "folder": os.getcwd(),
        "environment": options.environment,
        "world_size": options.world_size,
        "ranks_per_node": options.ranks_per_node,
        "host_timeout_s": options.host_timeout_s,
        "memory_limit_bytes": options.memory_limit_bytes,
        "communicator_memory_bytes": options.communicator_memory_bytes,
    }


def make_job(options: LaunchOptions, host: int, ranks: range, digest: str | None) -> dict:
    """And to run its ranks of a capture."""
    return job_of(options, digest) | {
        "first_rank": ranks.start,
        "ranks": len(ranks),
        "host": host,
        "link_port": options.link_port,
        "master_addr": options.master_addr,
        "master_port": options.master_port,
    }


def program_of(job: dict) -> Program:
    """At the agent: the head's program, in the head's folder."""
    program = Program(**job["program"])
    try:
        os.chdir(job["folder"])
        program.check()
    except OSError as reason:
        raise LaunchError(f"the folder {job['folder']} cannot be entered: {reason.strerror}", 4) from None
    except ValueError as reason:
        raise LaunchError(str(reason), 4) from None
    if job["digest"] is not None:
        with open(program.path or "", "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != job["digest"]:
                raise LaunchError(f"the program {program.name} is another one here than at the head", 4)
    return program
