"""Topology files of packet simulators, as SimAI (and other descendants of HPCC's ns-3 code) read them.

    34 8 2 16 96 H20              vertices, GPUs of a server, NVSwitches, other switches, cables, GPU type
    16 17 18 ...                  numbers of the NVSwitches, then of the other switches, on one line or more
    0 16 900Gbps 0.000025ms 0     for each cable its ends, bandwidth, delay, error rate

HPCC's own header of three numbers (vertices, switches, cables) is read too. Vertices that are no switch are the
devices; rank r is the r-th of them. They have no NIC vertex: their cables go to NVSwitches and to the fabric. Empty
lines and what follows a # are passed over. Amounts are ns-3's: 400Gbps, 50GB/s or bits per second as a number; 1us,
0.5ms or seconds as a number. Packets that are lost are sent again, so an error rate takes its share of the bandwidth.
"""

from __future__ import annotations

import os
import re

import numpy as np

from prismllm.cluster.cluster import Cluster
from prismllm.cluster.errors import ClusterError, among, shown
from prismllm.cluster.graph import ClusterGraph
from prismllm.cluster.keys import MOST_CABLES, MOST_DEVICES
from prismllm.cluster.library import DeviceType, devices
from prismllm.cluster.model import Link
from prismllm.cluster.quantities import BANDWIDTH, DURATION, NUMBER
from prismllm.cluster.topology_graph import build_topology, joined

# What the simulators call device types, where the library's name is another.
_ALSO = {"A100": "A100-80GB", "H100": "H100-SXM", "ASCEND910B": "Ascend-910B"}
_NO_TYPE = "NONE"


def read_topology(text: str, file: str) -> Cluster:
    lines = [(number, line.split("#")[0].split()) for number, line in enumerate(text.split("\n"), 1)]
    return _Topology(file, [(number, words) for number, words in lines if words]).cluster()


class _Topology:
    def __init__(self, file: str, lines: list[tuple[int, list[str]]]):
        self.file, self.lines, self.at = file, lines, 0
        self.header()
        self.switches()
        self.cables()

    def error(self, line: int, text: str) -> ClusterError:
        return ClusterError(self.file, line, text)

    def next_line(self, wanted: str) -> tuple[int, list[str]]:
        if self.at == len(self.lines):
            last = self.lines[-1][0] if self.lines else 1
            raise self.error(last, f"the file ends; accepted: {wanted}")
        self.at += 1
        return self.lines[self.at - 1]

    def whole(self, line: int, field: str, word: str, least: int, most: int) -> int:
        if not re.fullmatch("[0-9]{1,18}", word) or not least <= int(word) <= most:
            raise self.error(line, f"{field} = {shown(word)}; accepted: a whole number from {least} to {most}")
        return int(word)

    def header(self) -> None:
        line, words = self.next_line("a header of 3 or 6 fields")
        if len(words) not in (3, 6):
            raise self.error(line, f"the header has {len(words)} fields; accepted: 3 (vertices, switches, cables) or 6 "
                             "(vertices, GPUs of a server, NVSwitches, switches, cables, GPU type)")  # fmt: skip
        gpu_type = _NO_TYPE
        if len(words) == 3:
            words = [words[0], "1", "0", words[1], words[2]]
        else:
            gpu_type = words.pop()
        self.vertices = self.whole(line, "vertices", words[0], 1, 2 * MOST_DEVICES)
        self.per_server = self.whole(line, "GPUs of a server", words[1], 1, MOST_DEVICES)
        self.nvswitch_count = self.whole(line, "NVSwitches", words[2], 0, self.vertices - 1)
        self.switch_count = self.whole(line, "switches", words[3], 0, self.vertices - 1 - self.nvswitch_count)
        self.cable_count = self.whole(line, "cables", words[4], 0, MOST_CABLES)
        self.device = self.device_of(line, gpu_type)
        self.device_count = self.vertices - self.nvswitch_count - self.switch_count
        if self.device_count > MOST_DEVICES:
            raise self.error(line, f"the file has {self.device_count} devices; accepted: at most {MOST_DEVICES}")
        if self.device_count % self.per_server:
            raise self.error(line, f"GPUs of a server = {self.per_server}; accepted: a divisor of the "
                             f"{self.device_count} devices")  # fmt: skip

    def device_of(self, line: int, name: str) -> DeviceType | None:
        known = {key.upper(): key for key in devices()} | _ALSO
        if name.upper() == _NO_TYPE:
            return None
        if name.upper() not in known:
            raise self.error(line, f"GPU type = {shown(name)}; {among(name.upper(), [*known, _NO_TYPE])}")
        return devices()[known[name.upper()]]

    def switches(self) -> None:
        wanted = self.nvswitch_count + self.switch_count
        self.switch_ids: dict[int, None] = {}
        while len(self.switch_ids) < wanted:
            line, words = self.next_line(f"the numbers of {wanted} switches; there are {len(self.switch_ids)}")
            for word in words:
                number = self.whole(line, "switch", word, 0, self.vertices - 1)
                if number in self.switch_ids:
                    raise self.error(line, f"switch {number} is named twice; accepted: {wanted} different numbers")
                self.switch_ids[number] = None
            if len(self.switch_ids) > wanted:
                raise self.error(line, f"{len(self.switch_ids)} switches are named; accepted: {wanted}")

    def cables(self) -> None:
        """Ends as numbers of the file, and each cable's link."""
        self.ends, self.links = [], []
        known: dict[tuple[str, ...], Link] = {}
        for count in range(self.cable_count):
            line, words = self.next_line(f"{self.cable_count} cables; there are {count}")
            if len(words) != 5:
                raise self.error(line, f"the line has {len(words)} fields; accepted: 5 (two ends, bandwidth, delay, "
                                 "error rate)")  # fmt: skip
            ends = [self.whole(line, "end", word, 0, self.vertices - 1) for word in words[:2]]
            if ends[0] == ends[1]:
                raise self.error(line, f"the cable joins {ends[0]} to itself; accepted: two different ends")
            kind = tuple(words[2:])
            if kind not in known:  # a handful, however many the cables
                known[kind] = self.link(line, *kind)
            self.ends.append(ends)
            self.links.append(known[kind])
        if self.at < len(self.lines):
            line, words = self.lines[self.at]
            raise self.error(line, f"{shown(' '.join(words))} follows the last cable; accepted: {self.cable_count} "
                             "cables, as the header says")  # fmt: skip

    def link(self, line: int, bandwidth: str, delay: str, error_rate: str) -> Link:
        rate = BANDWIDTH.read(float(bandwidth) / 8 if _is_number(bandwidth) else bandwidth)
        if rate is None:
            raise self.error(line, f"bandwidth = {shown(bandwidth)}; accepted: such as 400Gbps, or a number of bits "
                             "per second")  # fmt: skip
        time = DURATION.read(float(delay) if _is_number(delay) else delay)
        if time is None:
            raise self.error(line, f"delay = {shown(delay)}; accepted: such as 0.0005ms, or a number of seconds")
        if not _is_number(error_rate) or float(error_rate) >= 1:
            raise self.error(line, f"error rate = {shown(error_rate)}; accepted: a number from 0, below 1")
        return Link(float(rate), round(time), 1.0 - float(error_rate))

    def cluster(self) -> Cluster:
        name = os.path.basename(self.file)
        graph = self.graph()
        return Cluster(name, graph.endpoint, imported=graph, imported_device=self.device)

    def graph(self) -> ClusterGraph:
        ends = np.array(self.ends, np.int32).reshape(-1, 2)
        switches = np.split(np.array(list(self.switch_ids), np.int32), [self.nvswitch_count])
        self.check_joined(ends, np.setdiff1d(np.arange(self.vertices), np.concatenate(switches)))
        bandwidth = np.array([link.bytes_per_second * link.efficiency for link in self.links])
        delay = np.array([link.delay_ps for link in self.links], np.int64)
        return build_topology(self.vertices, switches, self.per_server, ends, [bandwidth, delay])

    def check_joined(self, ends: np.ndarray, devices: np.ndarray) -> None:
        label = joined(self.vertices, ends)
        if apart := devices[label[devices] != label[devices[0]]].tolist():
            text = f"no way leads from {devices[0]} to {apart[0]}; accepted: devices that are all joined"
            raise self.error(self.lines[-1][0], text)


def _is_number(word: str) -> bool:
    return re.fullmatch(NUMBER, word) is not None
