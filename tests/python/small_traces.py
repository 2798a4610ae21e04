"""Traces written by hand, whose figures are known by arithmetic."""

import json

from prismllm import _graph
from prismllm.trace import Trace

MS = 1_000_000  # ns


class Recording:
    """One rank's recording, in the order in which things happen on its one lane."""

    def __init__(self, rank, groups):
        self.rank, self.groups = rank, groups
        self.now = 0
        self.nodes = {key: [] for key in ("kind", "lane", "comm", "name", "start_ns", "duration_ns")}
        self.comms = {key: [] for key in ("op", "dtype", "reduce_op", "group", "seq", "peer", "tag", "input_bytes",
                                          "output_bytes", "flags")}  # fmt: skip
        self.edges, self.marks, self.memory = {"src": [], "dst": []}, [], {"node": [], "bytes": [], "peak": []}
        self.sequence = {}

    def node(self, kind, start, duration, comm=-1, name=""):
        for key, value in zip(self.nodes, (kind, 0, comm, name, start, duration), strict=True):
            self.nodes[key].append(value)
        if kind != "transfer":
            self.now = start + duration
        return len(self.nodes["kind"]) - 1

    def compute(self, duration, name=""):
        return self.node("compute", self.now, duration, name=name)

    def issue(self, op, group, nbytes, end, duration=0, peer=-1, tag=0, flags=0):
        """Issue and transfer; returns (comm, transfer node). `end`: when this member is done."""
        comm = len(self.comms["op"])
        key = (op, peer, tag) if op in ("send", "recv") else group
        values = (op, "float32", "sum" if "reduce" in op else "none", group, self.sequence.get(key, 0), peer, tag,
                  0 if op == "recv" else nbytes, 0 if op == "send" else nbytes, flags)  # fmt: skip
        for column, value in zip(self.comms, values, strict=True):
            self.comms[column].append(value)
        self.sequence[key] = self.sequence.get(key, 0) + 1
        issue = self.node("issue", self.now, duration, comm)
        transfer = self.node("transfer", self.now, end - self.now, comm)
        self._edge(issue, transfer)
        return comm, transfer

    def wait(self, comm, transfer, end):
        node = self.node("wait", self.now, end - self.now, comm)
        self._edge(transfer, node)

    def _edge(self, src, dst):
        self.edges["src"].append(src)
        self.edges["dst"].append(dst)

    def mark(self):
        """An iteration begins with the next node."""
        self.marks.append(len(self.nodes["kind"]))

    def hold(self, nbytes, peak):
        """At the end of the last node so many bytes were in use."""
        for column, value in zip(self.memory.values(), (len(self.nodes["kind"]) - 1, nbytes, peak), strict=True):
            column.append(value)

    def record(self):
        return {"rank": self.rank, "lanes": ["main"], "groups": self.groups, "nodes": self.nodes, "comms": self.comms,
                "edges": self.edges, "marks": self.marks, "memory": self.memory}  # fmt: skip


def build(recordings, timed=True, metadata=None):
    graph = _graph.Builder(
        len(recordings), timed=timed, metadata_json=json.dumps(metadata or {"program": ["train.py"]})
    )
    for recording in recordings:
        graph.add(recording.record())
    return Trace(graph.finish())


def data_parallel(compute_ms, iterations=3, transfer_ms=2, issue_ms=1, nbytes=4096, **options):
    """Each rank computes its own time, then all meet in an all-reduce that takes transfer_ms once the last has come.

    An iteration lasts max(compute) + issue + transfer. A rank is busy for compute + issue, exposed for transfer, and
    waits for max(compute) - compute.
    """
    recordings = []
    length = (max(compute_ms) + issue_ms + transfer_ms) * MS
    for rank, own in enumerate(compute_ms):
        r = Recording(rank, [("default_pg", list(range(len(compute_ms))))])
        for i in range(iterations):
            r.mark()
            r.compute(own * MS, name="forward" if i == 0 else "")
            r.hold(1000 * (rank + 1) + i, 2000 * (rank + 1) + i)
            end = (i + 1) * length
            r.wait(*r.issue("all_reduce", 0, nbytes, end, issue_ms * MS), end)
        recordings.append(r)
    return build(recordings, **options)


def message_pair(iterations=2, **options):
    """Rank 0 computes 3 ms and sends; rank 1 posts its receive at once and waits; the message takes 1 ms.

    Rank 1 waits 3 ms and is exposed for 1; rank 0's send waits for nobody and is exposed for 1.
    """
    sender, receiver = (Recording(rank, [("default_pg", [0, 1])]) for rank in (0, 1))
    for i in range(iterations):
        begin = 5 * MS * i
        sender.mark(), receiver.mark()
        sender.compute(3 * MS)
        sender.wait(*sender.issue("send", 0, 64, begin + 4 * MS, peer=1, tag=7), begin + 4 * MS)
        sender.compute(1 * MS)
        receiver.wait(*receiver.issue("recv", 0, 64, begin + 4 * MS, peer=0, tag=7), begin + 4 * MS)
        receiver.compute(1 * MS)
    return build([sender, receiver], **options)
