"""Rendezvous under capture: env://, tcp:// and file:// lead to the coordinator's store, so that a rank which waits in
the store gives its slot back, and nobody listens on a port."""

from __future__ import annotations

import os
import sys
from collections import Counter
from urllib.parse import parse_qsl, urlparse

from torch.distributed import PrefixStore, rendezvous

# Rendezvous of this process so far, by address: a program may destroy its groups and meet again at the same place.
_meetings: Counter[str] = Counter()
_originals: dict[str, object] = {}  # torch's own, for helper processes of a rank


def _value(scheme: str, query: dict[str, str], name: str, variable: str) -> int:
    text = query.get(name) or (os.environ.get(variable) if scheme == "env" else None)
    if not text:
        raise ValueError(
            f"Error initializing torch.distributed using {scheme}:// rendezvous: "
            + (f"environment variable {variable} expected, but not set" if scheme == "env" else f"{name} missing")
        )
    return int(text)


def _meet(url: str, **options):
    from prismllm import _c10d, takeover

    if not takeover.check_may_create_group():
        yield from _originals[urlparse(url).scheme](url, **options)
        return
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    rank = _value(parts.scheme, query, "rank", "RANK")
    world_size = _value(parts.scheme, query, "world_size", "WORLD_SIZE")
    place = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if takeover.answering:
        place = f"rank{rank}/{place}"  # nobody else's keys
    _meetings[place] += 1
    yield PrefixStore(f"{place}#{_meetings[place]}", _c10d.PrismStore()), rank, world_size
    raise RuntimeError(f"Unable to perform re-rendezvous using {parts.scheme}:// method")


def install():
    # register_rendezvous_handler() refuses schemes that exist.
    handlers = sys.modules[rendezvous.__module__]._rendezvous_handlers
    for scheme in ("env", "tcp", "file"):
        _originals[scheme] = handlers[scheme]
        handlers[scheme] = _meet
