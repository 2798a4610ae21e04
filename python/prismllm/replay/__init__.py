"""Offline replay: the whole graph with all ranks virtual, in no time, with what-ifs.

    replay = prismllm.replay.replay("job.prism", edits=[Edit(rank=3, name="forward", scale=1.2)])
    replay.iterations[-1].time_s, replay.ranks[3].waiting_s

On a network, its communication takes what the links allow that it shares:

    replay = prismllm.replay.replay("job.prism", network=NetworkOptions(prismllm.cluster.load("cluster.toml")))
    replay.network.links[0].name, replay.network.links[0].utilisation

Waits are recomputed from what they wait for; definitions stand in csrc/replay/replay.hpp and report.cpp.
"""

from prismllm.replay.critical_path import CriticalPath, Hop, Late
from prismllm.replay.groups import GroupLeft, GroupReduction, GroupUse, reduce_groups
from prismllm.replay.network import LinkUse, NetworkOptions, NetworkUse
from prismllm.replay.offline import Iteration, Rank, Replay, as_recorded, replay, retimed
from prismllm.replay.scenario import Links, Scenario, load_scenario
from prismllm.replay.what_if import Communication, Edit, LinkEdit, Overlap

__all__ = ["Communication", "CriticalPath", "Edit", "GroupLeft", "GroupReduction", "GroupUse", "Hop", "Iteration",
           "Late", "LinkEdit", "LinkUse", "Links", "NetworkOptions", "NetworkUse", "Overlap", "Rank", "Replay",
           "Scenario", "as_recorded", "load_scenario", "reduce_groups", "replay", "retimed"]  # fmt: skip
