"""What `capture` and `agent` share: how the hosts of a run find and know each other."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace

import click

from prismllm.cli.common import Output
from prismllm.launch import LaunchOptions, RunFolder
from prismllm.launch.hosts.channel import parse_address, read_token
from prismllm.launch.hosts.head import (
    DEFAULT_PORT,
    Listener,
    RemoteHost,
    RemoteHosts,
    make_job,
    program_digest,
    shares,
)
from prismllm.launch.supervisor import Company


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


@contextlib.contextmanager
def other_hosts(options: LaunchOptions, folder: RunFolder, output: Output, agents: int, listen: tuple[str, int],
                token: bytes, wait_s: float) -> Iterator[tuple[LaunchOptions, Company]]:  # fmt: skip
    """Waits for the agents, divides the ranks, and yields the options of this host's part, and the others."""
    with contextlib.ExitStack() as stack:
        listener = Listener(*listen)
        stack.callback(listener.close)
        output.notice(f"listening on {listener.address}:{listener.port} for {agents} agents "
                      f"(and on port {listener.link_port} for their ranks)")  # fmt: skip
        offers = listener.wait_for(agents, token, wait_s, output.notice, options.host_timeout_s)
        for offer in offers:
            stack.callback(offer.channel.close)
        counts = shares(options.world_size, [options.slots, *(offer.slots for offer in offers)])
        reserved = stack.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("", 0))
        first_address = listener.address if counts[0] else offers[0].channel.socket.getpeername()[0]
        hosts = [{"name": socket.gethostname(), "ranks": counts[0], "slots": options.slots, "proof": "", "our_proof": ""}]
        remote, before = [], counts[0]
        for offer, count in zip(offers, counts[1:], strict=True):
            hosts.append({"name": offer.name, "ranks": count, "slots": offer.slots,
                          "proof": offer.channel.prove("relay").hex(),
                          "our_proof": offer.channel.prove("coordinator").hex()})  # fmt: skip
            remote.append(RemoteHost(offer, folder, options.log_dir, range(before, before + count)))
            before += count
        options = replace(options, ranks_here=counts[0], hosts=hosts, link_fd=listener.links.fileno(),
                          link_port=listener.link_port, master_addr=first_address,
                          master_port=reserved.getsockname()[1])  # fmt: skip
        digest = program_digest(options)
        for index, host in enumerate(remote, 1):
            host.start(make_job(options, index, host.ranks, hosts[index]["slots"], digest))
        yield options, RemoteHosts(remote, 2 * options.host_timeout_s)
