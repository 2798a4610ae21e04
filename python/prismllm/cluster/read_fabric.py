"""Fabrics and the long links between sites."""

from __future__ import annotations

from prismllm.cluster.errors import Place
from prismllm.cluster.fabrics import ceil_div
from prismllm.cluster.model import FatTree, Link, Mesh, NodeKind, Rail, Site, SiteLink, Switch
from prismllm.cluster.read_link import read_link
from prismllm.cluster.tables import Values

Fabric = Switch | FatTree | Rail | Mesh


def read_fabric(site: Values, kinds: tuple[NodeKind, ...]) -> Fabric | None:
    values, nodes = site["fabric"], sum(kind.count for kind in kinds)
    if not values:
        if nodes > 1:
            raise (site.place / "fabric").missing("a fabric, where there is more than one node")
        return None
    for kind, node in zip(kinds, site["node"], strict=True):
        if not kind.nics:
            raise (node.place / "nic").missing("NICs, where there is a fabric")
    if values["kind"] == "switch":
        return Switch()
    return {"fat_tree": _fat_tree, "rail": _rail, "mesh": _mesh}[values["kind"]](values, kinds, nodes)


def _above(values: Values, link: str, ratio: str) -> tuple[float, Link, int]:
    """Oversubscription (0: the link's own bandwidth counts), link, parallel cables."""
    at = values.place / ratio
    if values[link]["bandwidth"] is None and values[link]["type"] is None:
        return values[ratio] or 1.0, read_link(values[link], derived=True), values[link]["cables"]
    if values[ratio] is not None:
        raise at.error(f"{at} stands beside a bandwidth of {link}; accepted: one of them")
    return 0.0, read_link(values[link]), values[link]["cables"]


def _refused(values: Values, keys: tuple[str, ...], without: str) -> None:
    for key in keys:
        if values[key] is not None:
            at = values.place / key
            raise at.error(f"{at} stands without {without}; accepted: with at least 1 of them")


def _fat_tree(values: Values, kinds: tuple[NodeKind, ...], nodes: int) -> FatTree:
    place, aggregations, cores = values.place, values["aggregations"], values["cores"]
    tors = ceil_div(nodes, values["nodes_per_tor"])
    tors_per_pod = values["tors_per_pod"] or tors
    if cores % aggregations:
        raise (place / "cores").wrong(cores, f"a multiple of aggregations, {aggregations}")
    if not cores and tors > tors_per_pod:
        pods = ceil_div(tors, tors_per_pod)
        raise (place / "cores").missing(f"a multiple of aggregations, {aggregations}, to join {pods} pods")
    oversubscription, uplink, uplink_cables = _above(values, "uplink", "oversubscription")
    core_oversubscription, core_link, core_cables = 0.0, None, 1
    if cores and not values["core_link"]:
        raise (place / "core_link").missing("a table, where there are cores")
    if cores:
        core_oversubscription, core_link, core_cables = _above(values, "core_link", "core_oversubscription")
    else:
        _refused(values, ("core_link", "core_oversubscription"), "cores")
    return FatTree(values["nodes_per_tor"], tors_per_pod, aggregations, cores, oversubscription,
                   core_oversubscription, uplink, uplink_cables, core_link, core_cables)  # fmt: skip


def _rail(values: Values, kinds: tuple[NodeKind, ...], nodes: int) -> Rail:
    place, spines = values.place, values["spines"]
    per_group = values["nodes_per_group"] or nodes
    if not spines:
        if nodes > per_group:
            groups = ceil_div(nodes, per_group)
            raise (place / "spines").wrong(spines, f"at least 1, to join {groups} groups")
        _refused(values, ("uplink", "oversubscription"), "spines")
        return Rail(per_group, 0, 0.0, None, 1)
    if not values["uplink"]:
        raise (place / "uplink").missing("a table, where there are spines")
    return Rail(per_group, spines, *_above(values, "uplink", "oversubscription"))


def _mesh(values: Values, kinds: tuple[NodeKind, ...], nodes: int) -> Mesh:
    if len({kind.nics.count for kind in kinds}) > 1:
        raise (values.place / "kind").wrong("mesh", "where all kinds of node have the same nic.count")
    links = {kind.nics.link for kind in kinds}
    if not values["link"] and len(links) > 1:
        raise (values.place / "link").missing("a link, where kinds of node have unlike NICs")
    return Mesh(read_link(values["link"], kinds[0].nics.link) if values["link"] else links.pop())


def read_site_links(values: Values, sites: list[tuple[Site, Place]]) -> tuple[SiteLink, ...]:
    names = [site.name for site, _ in sites]
    links, joined = [], list(range(len(sites)))
    for read in values["site_link"] or []:
        at = read.place / "between"
        ends = read["between"]
        if len(ends) != 2 or len(set(ends)) != 2 or not set(ends) <= set(names):
            raise at.wrong(ends, f"two of {', '.join(names)}")
        first, second = (names.index(name) for name in ends)
        links.append(SiteLink(first, second, read["cables"], read_link(read)))
        joined = [joined[first] if label == joined[second] else label for label in joined]
    for index, (site, place) in enumerate(sites):
        if joined[index] != joined[0]:
            raise place.error(f"no site_link joins {site.name} to {names[0]}; accepted: sites that are all joined")
        if len(sites) > 1 and (site.fabric is None or _topless(site.fabric)):
            raise (place / "fabric").error(f"{site.name} has no topmost switches; accepted: a fabric that has some")
    return tuple(links)


def _topless(fabric: Fabric) -> bool:
    return isinstance(fabric, Mesh) or (isinstance(fabric, Rail) and not fabric.spines)
