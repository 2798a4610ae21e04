"""The head's side: lets agents in, gives each its ranks, and takes from it what its ranks print and leave behind."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prismllm.launch.hosts.channel import Channel, ChannelError
from prismllm.launch.hosts.job import own_versions
from prismllm.launch.options import RunFolder
from prismllm.launch.outcome import Exit, LaunchError
from prismllm.launch.supervisor import Company

DEFAULT_PORT = 29600
_GREETING_S = 5.0
SIGN_OF_LIFE_S = 0.5  # at least so often, from both ends
TEARDOWN_S = 6.0  # who ends its ranks may say nothing meanwhile


@dataclass
class Offer:
    """An agent that has been let in."""

    channel: Channel
    name: str
    slots: int
    peer: str  # its address

    def tell(self, message: dict) -> None:
        try:
            self.channel.send(message)
        except ChannelError as why:
            raise LaunchError(f"host {self.name} is lost before the run: {why}", 4) from None


class Listener:
    """Two TCP ports, PORT for agents and the next one for their relays (any two where PORT is 0)."""

    def __init__(self, host: str, port: int):
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self.agents = socket.create_server((host, port), family=family, backlog=128)
            self.links = socket.create_server((host, port and port + 1), family=family, backlog=128)
        except OSError as reason:
            ports = f"ports {port} and {port + 1}" if port else "two ports"
            raise LaunchError(f"{ports} of {host} cannot be listened on: {reason.strerror or reason}", 2) from None
        self.address, self.port = self.agents.getsockname()[:2]
        self.link_port = self.links.getsockname()[1]

    def close(self) -> None:
        self.agents.close()
        self.links.close()

    def wait_for(self, count: int, token: bytes, timeout_s: float, say: Callable[[str], None],
                 timeout_of_sends_s: float) -> list[Offer]:  # fmt: skip
        """Agents in the order of their names; LaunchError where they have not come in time."""
        deadline = time.monotonic() + timeout_s
        offers: list[Offer] = []
        while len(offers) < count:
            try:
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                self.agents.settimeout(left)
                connected, peer = self.agents.accept()
            except TimeoutError:
                came = f"only {', '.join(offer.name for offer in offers)} came" if offers else "none came"
                raise LaunchError(
                    f"{count} agents were to connect to {self.address}:{self.port} within {timeout_s:.0f} s; {came} "
                    "(on each host: prism agent --connect HOST:PORT --token-file FILE)", 4) from None  # fmt: skip
            channel = Channel(connected, min(_GREETING_S, left))
            try:
                channel.greet_agent(token)
                offer = _read_offer(channel, peer[0])
            except ChannelError as why:
                say(f"an agent from {peer[0]} is not let in: {why}")
                channel.close()
                continue
            connected.settimeout(timeout_of_sends_s)
            say(f"agent {offer.name} offers {offer.slots} slots")
            offers.append(offer)
        return _told_apart(sorted(offers, key=lambda offer: (offer.name, offer.slots, offer.peer)))


def _read_offer(channel: Channel, peer: str) -> Offer:
    message = channel.receive()
    name, slots, versions = message.get("name"), message.get("slots"), message.get("versions")
    if not isinstance(name, str) or not isinstance(slots, int) or not 1 <= slots <= 65536:
        raise ChannelError("it offers nothing that can be understood")
    if not isinstance(versions, dict):
        raise ChannelError("it does not say what it is made of")
    if versions != own_versions():
        theirs = ", ".join(f"{key} {value}" for key, value in versions.items())[:200]
        ours = ", ".join(f"{key} {value}" for key, value in own_versions().items())
        text = f"agent {name} has {theirs}; accepted: {ours}"
        with contextlib.suppress(ChannelError):
            channel.send({"refused": text})
        raise LaunchError(text, 4)
    name = re.sub(r"[^\w.-]", "_", name)[:64] or peer
    return Offer(channel, name, slots, peer)


def _told_apart(offers: list[Offer]) -> list[Offer]:
    """Hosts of one name get a number."""
    seen: Counter[str] = Counter()
    for offer in offers:
        seen[offer.name] += 1
        if seen[offer.name] > 1:
            offer.name += f"#{seen[offer.name]}"
    return offers


def shares(world_size: int, slots: list[int]) -> list[int]:
    """How many ranks each host gets: as its slots are to all slots, in blocks."""
    total, before, bounds = sum(slots), 0, [0]
    for each in slots:
        before += each
        bounds.append(world_size * before // total)
    return [end - begin for begin, end in itertools.pairwise(bounds)]


class RemoteHost:
    """An agent while the run lasts."""

    def __init__(self, offer: Offer, folder: RunFolder, log_dir: str, ranks: Sequence[int]):
        self.offer, self.channel, self.name, self.ranks = offer, offer.channel, offer.name, ranks
        self.folder, self.log_dir = folder, log_dir
        self.done = self.well = False
        self.failure: tuple[int, LaunchError] | None = None  # PrismLLM's own, on that host
        self.exits: list[Exit] = []

    def __str__(self) -> str:
        first, last = self.ranks[0], self.ranks[-1]
        return f"host {self.name} (rank {first})" if first == last else f"host {self.name} (ranks {first}-{last})"

    def start(self, job: dict) -> None:
        """Sends its job; the agent's clock is set against ours by the time that it gets it."""
        self.offer.tell({"job": job | {"now_ns": time.monotonic_ns()}})
        self.channel.socket.setblocking(False)
        self.channel.heard = time.monotonic()  # until now nothing was to be said

    def read(self) -> None:
        """Takes what has come. Afterwards `done`, where that was the last."""
        try:
            more = self.channel.feed()
            for message, data in self.channel.messages():
                self._handle(message, data)
            if not more and not self.done:
                raise ChannelError("its connection has closed")
        except ChannelError as why:
            self.lose(str(why))
        except OSError as why:
            self._fail(f"what {self} sends cannot be written: {why.strerror} ({why.filename})")

    def lose(self, why: str) -> None:
        self._fail(f"{self} is lost: {why}")

    def say_alive(self) -> None:
        with contextlib.suppress(ChannelError):  # that it is gone, or takes nothing, its silence will tell
            self.channel.send({})

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.socket.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Nothing more is to be heard of it in this run."""
        self.channel.close()

    def _fail(self, text: str, done: bool = True) -> None:
        # A while before its ranks' end is noticed, whose cause this is.
        self.failure = self.failure or (time.monotonic_ns() - 1_000_000_000, LaunchError(text, 4))
        self.done = done

    def _handle(self, message: dict, data: bytes) -> None:
        if "file" in message:
            self._write(str(message["file"]), data)
        elif isinstance(ended := message.get("exit"), dict):
            rank, status, time_ns = (ended.get(key) for key in ("rank", "status", "time_ns"))
            if rank not in self.ranks or not isinstance(status, int) or not isinstance(time_ns, int):
                raise ChannelError("it told of an end that makes no sense")
            self.exits.append(Exit(rank, status, time_ns))
        elif why := message.get("ending"):
            self._fail(f"{self}: {why}", done=False)
        elif "done" in message:
            self.done, self.well = True, message["done"] == "well"
            if why := message.get("failure"):
                self._fail(f"{self}: {why}")

    def _write(self, name: str, data: bytes) -> None:
        """What it may leave here: the logs, the status and the recording of its own ranks."""
        digits = re.search(r"[0-9]{1,6}", name)
        rank = int(digits[0]) if digits else -1
        places = {f"logs/rank{rank}.out": self.log_dir, f"logs/rank{rank}.err": self.log_dir,
                  f"status/rank{rank}.json": self.folder.status,
                  f"fragments/rank-{rank}.prism": self.folder.fragments}  # fmt: skip
        if rank not in self.ranks or name not in places:
            raise ChannelError(f"it sent the file '{name[:80]}'")
        with open(os.path.join(places[name], os.path.basename(name)), "ab") as file:
            file.write(data)


class RemoteHosts(Company):
    """All other hosts, beside the supervisor of this one."""

    def __init__(self, hosts: list[RemoteHost], silence_s: float):
        self.hosts, self.silence_s = hosts, silence_s + TEARDOWN_S
        self.said = 0.0

    @property
    def exits(self) -> list[Exit]:
        return [ended for host in self.hosts for ended in host.exits]

    def join(self, selector: selectors.BaseSelector, end_run: Callable[[], None]) -> None:
        def drop(host: RemoteHost) -> None:
            selector.unregister(host.channel)
            host.leave()
            if not host.well:
                end_run()

        def read(host: RemoteHost) -> None:
            host.read()
            if host.done:
                drop(host)

        self.drop = drop

        for host in self.hosts:
            selector.register(host.channel, selectors.EVENT_READ, functools.partial(read, host))

    def turn(self) -> None:
        """Signs of life to all; a host of which nothing is heard, not even that, is lost."""
        now = time.monotonic()
        silent_since = now - self.silence_s
        if its_time := now - self.said > SIGN_OF_LIFE_S:
            self.said = now
        for host in self.hosts:
            if its_time and not host.done:
                host.say_alive()
            if host.done or host.channel.heard >= silent_since:
                continue
            host.read()  # it may be us who were slow
            if not host.done and host.channel.heard < silent_since:
                host.lose(f"nothing was heard of it for {self.silence_s:.0f} s")
            if host.done:
                self.drop(host)

    def stop(self, why: str) -> None:
        for host in self.hosts:
            if not host.done:
                host.stop()

    def is_awaited(self, ended_here: bool) -> bool:
        """Their last words."""
        return any(not host.done for host in self.hosts)

    def failures(self) -> list[tuple[int, LaunchError]]:
        return [host.failure for host in self.hosts if host.failure]
