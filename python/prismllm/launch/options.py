"""What a launch is: the options that travel from the command line to the zygote, and the folder of a run."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import asdict, dataclass, field

from prismllm.launch.program import Program

_OPTIONS = "launch.json"


@dataclass
class LaunchOptions:
    route: str  # "capture" or "real"
    world_size: int
    program: Program
    run_dir: str
    log_dir: str
    ranks_per_node: int = 0  # 0: all on one node
    slots: int = 0  # capture only
    schedule: str = "need"  # capture only: who runs next; or "round-robin"
    devices: int = 0  # capture only: accelerators that the ranks are bound to, rank r to that of its LOCAL_RANK
    device_swap: str = "auto"  # capture only: or "never", "always"
    fake_device: str = ""  # for tests: a script in the place of the driver
    backend: str = ""  # real only: overrides what the program asks for
    namespaces: list[str] = field(default_factory=list)  # real only: each rank's network namespace; empty: this one's
    steady: bool = False  # real only: ranks go before all other processes, and their sleeps end on time
    memory_budget_bytes: int = 0
    memory_limit_bytes: int = 0  # of each rank; 0: none
    communicator_memory_bytes: int = -1  # of each process group; -1: by the model
    spill_dir: str = ""  # for tensors beyond the budget; "": the run's folder
    data_dir: str = ""  # an empty folder for what ranks put into communications; "": it is not kept
    data_for_ranks: list[int] | None = None  # only what these receive
    data_of_whole_numbers: bool = False  # only tensors of integers and bool
    data_limit_bytes: int = 0  # more is an error; 0: no limit
    inputs: str = ""  # capture only: a file of rules by which ranks run alone, or "builtin"; "": they do not
    classes: bool = True  # with inputs: of ranks that are alike one runs, and a sample
    verify: int | None = None  # how large the sample of a class is
    timed: bool = False  # capture only: spans are what they are on this machine, not processor time
    slices_fd: int = -1  # with inputs: the ranks to run come from there, slice after slice
    quick: bool = True  # with inputs, timed: real numbers are made up where no rule is for them, without a question
    played: str = ""  # with inputs: what the peers sent in a run that this command has just recorded there itself
    played_whole_numbers: bool = False  # of that, integers, bool and objects only
    # Emulation: these ranks run, the others are virtual (prismllm.emulation.Emulated, as a dict).
    sandbox: list[int] | None = None
    emulated: dict | None = None
    units: dict[str, dict] = field(default_factory=dict)  # by rank: what it runs on (prismllm.emulation.units)
    terminal: list[int] = field(default_factory=list)  # what debuggers of ranks read and write; empty: none are served
    more_ranks_fd: int = -1  # of ranks that run alone: held open by the zygote as long as some are to come
    environment: dict[str, str] = field(default_factory=dict)  # the user's, where the zygote's must differ
    # On several hosts; here on one of them.
    first_rank: int = 0
    ranks_here: int = -1  # -1: all
    hosts: list[dict] = field(default_factory=list)  # at the head: name, ranks, slots and proofs, itself first
    relay: dict = field(default_factory=dict)  # at an agent: its number as a host, and proofs
    link_fd: int = -1  # the head's listener for relays; an agent's connection to it
    link_port: int = 0
    host_timeout_s: float = 10.0
    master_addr: str = "127.0.0.1"
    master_port: int = 0  # 0: reserved by the zygote

    rules = None  # once they are loaded; no field, for they do not travel

    @property
    def ranks(self) -> range | list[int]:
        """Those of this host."""
        if self.sandbox is not None:
            return self.sandbox
        return range(self.first_rank, self.first_rank + (self.world_size if self.ranks_here < 0 else self.ranks_here))

    def save(self) -> str:
        path = os.path.join(self.run_dir, _OPTIONS)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)  # it holds proofs
            json.dump(asdict(self), file, indent=1)
        return path

    def memory_environment(self) -> dict[str, str]:
        """For prismllm.memory, in the ranks."""
        given = {"PRISM_MEMORY_LIMIT": self.memory_limit_bytes or None,
                 "PRISM_COMMUNICATOR_MEMORY": None if self.communicator_memory_bytes < 0
                 else self.communicator_memory_bytes}  # fmt: skip
        return {name: str(value) for name, value in given.items() if value is not None}

    @staticmethod
    def load(path: str) -> LaunchOptions:
        with open(path) as file:
            values = json.load(file)
        values["program"] = Program(**values["program"])
        return LaunchOptions(**values)


class RunFolder:
    """launch.json, logs/ (rankR.out, rankR.err, zygote.err), status/ (rankR.json, coordinator.json), fragments/."""

    def __init__(self, path: str):
        self.path = path
        self.logs, self.status, self.fragments = (os.path.join(path, name) for name in ("logs", "status", "fragments"))

    def create(self) -> None:
        """Makes it, or empties it of an earlier run; nothing else is ever removed. It belongs to this process then."""
        os.makedirs(self.path, exist_ok=True)
        self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(f"'{self.path}' is in use by another run") from None
        ours = os.path.exists(os.path.join(self.path, _OPTIONS))
        for folder in (self.logs, self.status, self.fragments):
            if ours:
                shutil.rmtree(folder, ignore_errors=True)
            elif os.path.lexists(folder):
                raise OSError(f"'{folder}' exists already and is not of an earlier run")
        for folder in (self.logs, self.status, self.fragments):
            os.makedirs(folder)

    def close(self) -> None:
        """It is nobody's then."""
        os.close(self.lock)

    def rank_status(self, rank: int) -> str:
        return os.path.join(self.status, f"rank{rank}.json")

    def rank_answers(self, rank: int) -> str:
        """Of a rank that ran alone: which rules answered it."""
        return os.path.join(self.status, f"answers{rank}.json")

    @property
    def debugger_turn(self) -> str:
        """Locked by the rank whose debugger has the terminal."""
        return os.path.join(self.status, "debugger")

    @property
    def classes(self) -> str:
        """Of ranks that run alone: which have not run, and whom they are like."""
        return os.path.join(self.status, "classes.json")

    @property
    def coordinator_status(self) -> str:
        return os.path.join(self.status, "coordinator.json")


def partial(path: str) -> str:
    """Where a status file is until it is complete."""
    return path + ".part"


def read_status(path: str) -> dict:
    """A status file; empty where the process was killed before it had written one."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}
