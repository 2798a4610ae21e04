"""What `capture` and `agent` share: how the hosts of a run find and know each other."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import click

from prismllm.cli.common import Output
from prismllm.cli.run import alone
from prismllm.launch import Company, LaunchOptions, RunFolder
from prismllm.launch.environment import reserve_port
from prismllm.launch.hosts.channel import parse_address, read_token
from prismllm.launch.hosts.head import DEFAULT_PORT, Listener, RemoteHost, RemoteHosts, shares
from prismllm.launch.hosts.job import make_job, program_digest
from prismllm.units import counted


class Address(click.ParamType):
    name = "HOST[:PORT]"

    def convert(self, value, param, ctx):
        try:
            return value if isinstance(value, tuple) else parse_address(value, DEFAULT_PORT)
        except ValueError as reason:
            self.fail(str(reason))


class TokenFile(click.ParamType):
    name = "FILE"

    def convert(self, value, param, ctx):
        try:
            return value if isinstance(value, bytes) else read_token(value)
        except ValueError as reason:
            self.fail(str(reason))


@dataclass
class Hosts:
    """What the user has said about other hosts."""

    agents: int
    listen: tuple[str, int]
    token: bytes
    wait_s: float
    timeout_s: float

    def join(self, output: Output) -> Callable:
        """For run_program()."""
        return functools.partial(_joined, hosts=self, output=output) if self.agents else alone


def host_options(command: Callable) -> Callable:
    """--agents, --listen, --token-file, --wait and --host-timeout, handed to the command as one Hosts."""

    @click.option("--agents", type=click.IntRange(1, 4096), metavar="K",
                  help="Wait for `prism agent` on K other hosts and use their slots, too.")  # fmt: skip
    @click.option("--listen", type=Address(), metavar="ADDRESS[:PORT]",
                  help="For agents, on PORT and the next; 127.0.0.1 serves this host alone  "
                       "[default: 127.0.0.1:29600]")  # fmt: skip
    @click.option("--token-file", "token", type=TokenFile(), help="The secret that agents share (mode 0600).")
    @click.option("--wait", "wait_s", type=click.FloatRange(1.0, 86400.0), default=300.0, metavar="SECONDS",
                  show_default=True, help="For agents.")  # fmt: skip
    @click.option("--host-timeout", "timeout_s", type=click.FloatRange(3.0, 3600.0), default=10.0, metavar="SECONDS",
                  show_default=True, help="A host that nothing is heard of for so long is lost.")  # fmt: skip
    @functools.wraps(command)
    def with_hosts(*args, agents, listen, token, wait_s, timeout_s, **kwargs):
        if agents is None and (listen or token):
            raise click.UsageError("--listen and --token-file are for --agents K, which is not given")
        if agents is not None and token is None:
            raise click.UsageError("--agents needs --token-file FILE, with the secret that the agents have, too")
        hosts = Hosts(agents or 0, listen or ("127.0.0.1", DEFAULT_PORT), token or b"", wait_s, timeout_s)
        return command(*args, hosts=hosts, **kwargs)

    return with_hosts


@contextlib.contextmanager
def _joined(options: LaunchOptions, folder: RunFolder, hosts: Hosts,
            output: Output) -> Iterator[tuple[LaunchOptions, Company]]:  # fmt: skip
    """Waits for the agents, divides the ranks, and yields the options of this host's part, and the others."""
    with contextlib.ExitStack() as stack:
        listener = Listener(*hosts.listen)
        stack.callback(listener.close)
        output.notice(f"listening on {listener.address}:{listener.port} for {counted(hosts.agents, 'agent')} "
                      f"(and on port {listener.link_port} for their ranks)")  # fmt: skip
        offers = listener.wait_for(hosts.agents, hosts.token, hosts.wait_s, output.notice, options.host_timeout_s)
        for offer in offers:
            stack.callback(offer.channel.close)
        counts = shares(options.world_size, [options.slots, *(offer.slots for offer in offers)])
        reserved = stack.enter_context(reserve_port())  # for rank 0's store, should the program make one
        table = [
            {"name": socket.gethostname(), "ranks": counts[0], "slots": options.slots, "proof": "", "our_proof": ""}
        ]
        others, before = [], counts[0]
        for offer, count in zip(offers, counts[1:], strict=True):
            if count == 0:
                offer.tell({"job": None})
                continue
            proofs = {"proof": offer.channel.prove("relay"), "our_proof": offer.channel.prove("coordinator")}
            table.append({"name": offer.name, "ranks": count, "slots": offer.slots}
                         | {name: proof.hex() for name, proof in proofs.items()})  # fmt: skip
            others.append(RemoteHost(offer, folder, options.log_dir, range(before, before + count)))
            before += count
        # Where the others reach rank 0: as they have reached us, or as we see its host.
        first = others[0].channel.socket if others else None
        name = (first.getsockname() if counts[0] else first.getpeername())[0] if first else options.master_addr
        link_fd = os.dup(listener.links.fileno())
        listener.close()
        options = replace(options, ranks_here=counts[0], hosts=table, link_fd=link_fd, link_port=listener.link_port,
                          master_addr=name, master_port=reserved.getsockname()[1])  # fmt: skip
        digest = program_digest(options)
        for index, host in enumerate(others, 1):
            host.start(make_job(options, index, host.ranks, digest))
        yield options, RemoteHosts(others, options.host_timeout_s)
