"""From the text of a cluster file to a Cluster. What one value may be stands in keys.py; here is what keys must agree
on between them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from prismllm.cluster.cluster import Cluster, cables
from prismllm.cluster.errors import ClusterError, Place, shown
from prismllm.cluster.keys import MOST_CABLES, MOST_DEVICES, file_form
from prismllm.cluster.lines import lines_of, tomllib
from prismllm.cluster.model import Processors, Site
from prismllm.cluster.read_fabric import read_fabric, read_site_links
from prismllm.cluster.read_node import read_node
from prismllm.cluster.read_placement import read_placement
from prismllm.cluster.tables import Values

MOST_BYTES = 2**26


def text_of(path: str | os.PathLike) -> str:
    """OSError where there is no such file."""
    file = os.fspath(path)
    status = os.stat(file)
    if not stat.S_ISREG(status.st_mode):  # a pipe might never end
        raise ClusterError(file, 1, "is not a regular file")
    if status.st_size > MOST_BYTES:
        raise ClusterError(file, 1, f"has {status.st_size} bytes; accepted: at most {MOST_BYTES}")
    content = Path(file).read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ClusterError(file, line, f"byte {content[error.start]:#04x} is not UTF-8; accepted: UTF-8 text") from None


def read_toml(text: str, file: str) -> Cluster:
    try:
        tables = tomllib.loads(text)
        place = Place(file, lines_of(text))
    except ValueError as error:  # also of numbers with thousands of digits
        raise _syntax_error(text, file, str(error)) from None
    except RecursionError:
        raise ClusterError(file, 1, "nests brackets too deeply; accepted: TOML") from None
    values = file_form().read(tables, place)
    sites = _sites(values)
    _check_size(sites, values["site_link"] or [], place)
    links = read_site_links(values, sites)
    shared = values["processors"]
    if shared:
        shared = Processors(shared["count"], round(shared["message_time"]), round(shared["operation_time"]),
                            float(shared["copy"] or 0), round(shared["queue"]))  # fmt: skip
    return Cluster(values["name"], read_placement(values, sites), tuple(site for site, _ in sites), links,
                   processors=shared or None)  # fmt: skip


def _syntax_error(text: str, file: str, reason: str) -> ClusterError:
    """`reason`: what the parser says, as a rule with the line at its end."""
    at = re.search(r" \(at line (\d+), column \d+\)$", reason)
    if at:
        line = int(at[1])
    elif digits := re.search("[0-9_]{1000}", text):
        reason, line = "a number has thousands of digits", text.count("\n", 0, digits.start()) + 1
    else:  # "at end of document"
        line = text.count("\n", 0, len(text.rstrip())) + 1
    reason = re.sub(r" \(at [^()]*\)$", "", reason)
    source = shown(text.split("\n")[line - 1].strip())
    return ClusterError(file, line, f"{reason}, in {source}; accepted: TOML")


def _sites(values: Values) -> list[tuple[Site, Place]]:
    """With the place where each stands."""
    place = values.place
    if not values["site"]:
        if values["site_link"]:
            raise (place / "site_link").error("site_link needs sites; accepted: with at least two [[site]]")
        if not values["node"]:
            raise (place / "node").missing("at least one [[node]], or [[site]] with nodes of its own")
        return [(_site("", values), place)]
    for key in ("node", "fabric"):
        if values[key]:
            raise (place / key).error(f"{key} stands beside site; accepted: within a [[site]]")
    sites: list[tuple[Site, Place]] = []
    for read in values["site"]:
        if read["name"] in {site.name for site, _ in sites}:
            raise (read.place / "name").wrong(read["name"], "a name that no other site has")
        sites.append((_site(read["name"], read), read.place))
    return sites


def _site(name: str, values: Values) -> Site:
    kinds = tuple(read_node(node) for node in values["node"])
    return Site(name, kinds, read_fabric(values, kinds))


def _check_size(sites: list[tuple[Site, Place]], site_links: list[Values], place: Place) -> None:
    """Before anything is built, or it would be killed for its memory."""
    devices = sum(kind.count * kind.devices for site, _ in sites for kind in site.kinds)
    if devices > MOST_DEVICES:
        at = place / ("site" if sites[0][0].name else "node")
        raise at.error(f"the cluster has {devices} devices; accepted: at most {MOST_DEVICES}")
    total = 0
    for at, count in [(where / "node", cables(site)) for site, where in sites] + [
        (link.place / "cables", link["cables"]) for link in site_links
    ]:
        total += count
        if total > MOST_CABLES:
            raise at.error(f"the cluster takes {total} cables; accepted: at most {MOST_CABLES}")
