"""The hosts of `prism time`: each takes the next slice when it is free."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from prismllm.cli.common import CommandError, Output
from prismllm.cli.hosts import Hosts
from prismllm.launch import LaunchError
from prismllm.launch.handout import on_this_host
from prismllm.launch.hosts.head import Listener
from prismllm.launch.hosts.slices import on_all_hosts
from prismllm.units import counted


@contextlib.contextmanager
def gathered(hosts: Hosts, output: Output) -> Iterator[Callable]:
    """Waits for the agents; yields what hands out slices, for run_program(). They stay until the end: between runs they
    wait for more."""
    if not hosts.agents:
        yield on_this_host
        return
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(contextlib.closing(Listener(*hosts.listen)))
            output.notice(f"listening on {listener.address}:{listener.port} for {counted(hosts.agents, 'agent')}")
            offers = listener.wait_for(hosts.agents, hosts.token, hosts.wait_s, output.notice, hosts.timeout_s)
        except LaunchError as failure:
            raise CommandError(str(failure), failure.exit_code) from None
        for offer in offers:
            stack.callback(offer.channel.close)
        listener.close()
        yield functools.partial(on_all_hosts, offers=offers)
        for offer in offers:
            with contextlib.suppress(LaunchError):  # what it had to say it has said
                offer.tell({"job": None})
