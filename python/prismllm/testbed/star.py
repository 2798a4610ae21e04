"""Hosts as network namespaces around one switch, a bridge in a namespace of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

from prismllm.launch import namespace
from prismllm.testbed.link import Link, TestbedError

MOST_HOSTS = 200
DEVICE = "eth0"  # of a host
_TOOL_S = 60.0  # for ip and tc to do what they are asked
# Within each host. A deep queue at the sender would delay the small messages behind large ones; what TCP learns about
# the way in one run is not to be known in the next.
_SETTINGS = {
    "ipv4/tcp_limit_output_bytes": "36000",
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_no_metrics_save": "1",
}


class Star:
    """To be used as a context, on the process's main thread."""

    def __init__(self, hosts: int, link: Link):
        if not 1 <= hosts <= MOST_HOSTS:
            raise ValueError(f"{hosts} hosts; accepted: 1 to {MOST_HOSTS}")
        self.hosts, self.link = hosts, link
        self.files: list[int] = []

    def address(self, host: int) -> str:
        return f"10.0.0.{host + 1}"

    def path(self, host: int) -> str:
        """The file of a host's namespace, for any process of the same user while this one lives."""
        return f"/proc/{os.getpid()}/fd/{self.files[host]}"

    def __enter__(self) -> Star:
        check_machine()
        with contextlib.ExitStack() as undo:
            undo.callback(self._close)
            try:
                self._build()
            except OSError as reason:
                raise TestbedError(f"the testbed's network cannot be made: {reason.strerror or reason}") from None
            undo.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._close()

    def _close(self) -> None:
        for fd in self.files:
            os.close(fd)
        self.files = []

    def _build(self) -> None:
        for _ in range(self.hosts + 1):
            self.files.append(namespace.create())
        ports, link = range(self.hosts), self.link
        with namespace.inside(self.path(self.hosts)):  # the switch
            _tool("ip", [f"link add switch mtu {link.mtu} type bridge stp_state 0 forward_delay 0",
                         *(f"link add port{i} mtu {link.mtu} type veth peer name {DEVICE} mtu {link.mtu} "
                           f"netns {self.path(i)}" for i in ports),
                         *(f"link set port{i} master switch up" for i in ports), "link set switch up"])  # fmt: skip
            _tool("tc", [link.limited(f"port{i}", outward=False) for i in ports])
        for host in ports:
            with namespace.inside(self.path(host)):
                for name, value in _SETTINGS.items():
                    with open(f"/proc/sys/net/{name}", "w") as file:
                        file.write(value)
                _tool("ip", ["link set lo up", f"address add {self.address(host)}/24 dev {DEVICE}",
                             f"link set {DEVICE} up"])  # fmt: skip
                _tool("tc", [link.limited(DEVICE, outward=True)])


def check_machine() -> None:
    """TestbedError for what is missing here."""
    if os.geteuid() != 0:
        raise TestbedError("the testbed needs root, to make network namespaces; accepted: running as user 0")
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            raise TestbedError(f"the testbed needs the command '{tool}' of iproute2, and it is not there")


def _tool(name: str, lines: list[str]) -> None:
    """Commands of ip or tc, all at once."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        done = subprocess.run([name, "-batch", "-"], input=text, capture_output=True, text=True, timeout=_TOOL_S)
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{name} has not answered for {_TOOL_S:g} s") from None
    if done.returncode == 0:
        return
    said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    what = "'tc ... tbf', which limits the rate of a link," if name == "tc" else "'ip link' between namespaces"
    raise TestbedError(f"{what} does not work here: {said[0]}")
