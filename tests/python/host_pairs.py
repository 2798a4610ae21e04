"""Two hosts on one machine: network namespaces joined by a veth pair. They share nothing but the link (and the file
system, as on a cluster). A capture runs on both."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest
from faults import LIMIT_S, alive

from prismllm.launch.processes import descendants

TOKEN = b"a token of some length"


def namespaces_allowed() -> bool:
    return os.geteuid() == 0 and subprocess.run(["ip", "netns", "list"], capture_output=True).returncode == 0


@contextlib.contextmanager
def two_hosts():
    """For each, the words that run a command there; the first is 10.77.0.1."""
    if not namespaces_allowed():
        pytest.skip("network namespaces need root and iproute2")
    names = [f"prism-{uuid.uuid4().hex[:8]}-{side}" for side in "ab"]
    ip = lambda words: subprocess.run(["ip", *words.split()], check=True)  # noqa: E731
    try:
        for name in names:
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
        ip(f"link add a{names[0][6:14]} netns {names[0]} type veth peer name b{names[0][6:14]} netns {names[1]}")
        for i, name in enumerate(names, 1):
            ip(f"-n {name} addr add 10.77.0.{i}/24 dev {'ab'[i - 1]}{names[0][6:14]}")
            ip(f"-n {name} link set {'ab'[i - 1]}{names[0][6:14]} up")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


class Job:
    """The head on the first host and an agent on the second."""

    def __init__(self, tmp_path, hosts, program, *options, agent_options=(), agents=1, head_slots=1, ranks=4, **start):
        self.folder, self.hosts = tmp_path, hosts
        (tmp_path / "program.py").write_text(program)
        (tmp_path / "token").write_bytes(TOKEN)
        (tmp_path / "token").chmod(0o600)
        (tmp_path / "tmp").mkdir()
        words = ["agent", "--connect", "10.77.0.1", "--token-file", "token", "--slots", 1, *agent_options]
        self.agents = [self.start(hosts[1], *words, log=f"agent{i or ''}", **start) for i in range(agents)]
        self.agent = self.agents[0]
        self.head = self.start(hosts[0], "capture", "-n", ranks, "--slots", head_slots, "--agents", agents, "--listen",
                               "10.77.0.1", "--token-file", "token", "-o", "out.prism", "--json", "out.json", *options,
                               "program.py", log="head")  # fmt: skip

    def start(self, host, *words, log, starter=(), environment=None):
        """`starter`: the words of a launcher that starts it."""
        with open(self.folder / f"{log}.txt", "w") as output:
            command = [*host, *starter, sys.executable, "-m", "prismllm", *map(str, words)]
            environment = os.environ | {"TMPDIR": str(self.folder / "tmp")} | (environment or {})
            return subprocess.Popen(command, stdout=output, stderr=output, cwd=self.folder, env=environment,
                                    stdin=subprocess.DEVNULL)  # fmt: skip

    def everyone(self):
        return [pid for top in (self.head, *self.agents) for pid in (top.pid, *descendants(top.pid))]

    def text(self, log="head"):
        return (self.folder / f"{log}.txt").read_text()

    def wait_for(self, text, times=1):
        for _ in range(LIMIT_S * 20):
            if self.text().count(text) >= times:
                return
            assert self.head.poll() is None, self.text() + self.text("agent")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.head.wait(0.05)
        raise AssertionError(f"no '{text}' in {self.text()}")

    def codes(self):
        try:
            return tuple(process.wait(LIMIT_S) for process in (self.head, *self.agents))
        finally:
            for pid in self.everyone():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def assert_gone(self, pids):
        """None of the processes is left, once those that are being ended have had their time."""
        end = time.monotonic() + LIMIT_S
        while left := [pid for pid in pids if alive(pid)]:
            assert time.monotonic() < end, f"left behind: {left}"
            time.sleep(0.01)

    def assert_nothing_left(self, pids):
        self.assert_gone(pids)
        assert not [name for name in os.listdir(self.folder / "tmp") if name.startswith("prism-agent")]
        assert not (self.folder / "out.prism").exists()

    def cut(self):
        """The link between the two goes down."""
        name = self.hosts[1][-1]
        subprocess.run(["ip", "-n", name, "link", "set", "b" + self.hosts[0][-1][6:14], "down"], check=True)
