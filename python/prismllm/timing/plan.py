"""Which ranks are real at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from prismllm import _graph
from prismllm.trace import Trace

_MESSAGES = ("send", "recv")


def plan(trace: Trace, ranks: Iterable[int], at_a_time: int) -> list[list[int]]:
    """Slices of at most `at_a_time` of these ranks, each in exactly one: those that talk most are put together."""
    wanted = sorted(ranks)
    together = {rank: [rank] for rank in wanted}  # the slice that it is in, so far
    for a, b in _by_talk(trace, set(wanted)):
        if together[a] is not together[b] and len(together[a]) + len(together[b]) <= at_a_time:
            joined = sorted(together[a] + together[b])
            together.update(dict.fromkeys(joined, joined))
    slices: list[list[int]] = []
    for part in _each_once(together[rank] for rank in wanted):
        room = next((one for one in slices if len(one) + len(part) <= at_a_time), None)
        if room is None:
            slices.append(list(part))
        else:
            room += part
    return [sorted(one) for one in slices]


def _each_once(parts: Iterable[Sequence[int]]) -> list[Sequence[int]]:
    return list({id(part): part for part in parts}.values())


def _by_talk(trace: Trace, wanted: set[int]) -> list[tuple[int, int]]:
    """Pairs by the bytes between them, most first: of a collective its members and their neighbours in the ring."""
    between: Counter[tuple[int, int]] = Counter()
    of_class = {cls: _bytes_of_class(trace, cls) for cls in range(trace.class_count)}
    for rank in wanted:
        groups, peers = of_class[int(trace.rank_class[rank])]
        slots = trace.graph.group_slots(rank)
        for slot, size in groups.items():
            members = trace.graph.group_members(int(slots[slot])).tolist()
            after = members[(members.index(rank) + 1) % len(members)]
            if after in wanted and after != rank:
                between[min(rank, after), max(rank, after)] += size
        others = trace.graph.peer_slots(rank)
        for slot, size in peers.items():
            if (peer := int(others[slot])) in wanted:
                between[min(rank, peer), max(rank, peer)] += size
    return sorted(between, key=lambda pair: (-between[pair], pair))


def _bytes_of_class(trace: Trace, cls: int) -> tuple[Counter[int], Counter[int]]:
    """By group slot in collectives, by peer slot in messages."""
    columns = trace.structure(cls)
    groups: Counter[int] = Counter()
    peers: Counter[int] = Counter()
    messages = [_graph.OPS.index(op) for op in _MESSAGES]
    for op, group, peer, put, got in zip(
        *(columns[f"comm_{name}"].tolist() for name in ("op", "group", "peer", "input_bytes", "output_bytes")),
        strict=True,
    ):
        if op not in messages:
            groups[group] += max(put, got)
        elif peer >= 0:
            peers[peer] += max(put, got)
    return groups, peers
