"""Hybrid emulation: chosen ranks run for real, the others are virtual (PrismLLM paper, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prismllm import _replay


@dataclass
class Emulated:
    """What the real ranks are put among. `trace`: a calibrated trace. `comm`, `network`: as of `prism replay --comm`,
    where transfers are not to take the trace's own times. `data`: a folder of `prism capture --data`, or ""."""

    trace: str
    comm: str = ""
    network: str = "flow"
    data: str = ""
    warn_on_divergence: bool = False
    check_values: bool = False  # whether the real ranks send what they sent when `data` was recorded

    def native(self, sandbox: list[int]) -> _replay.Emulation:
        """For the coordinator. Raises ValueError where the trace, the network and the ranks do not fit."""
        from prismllm import _replay
        from prismllm.trace import load

        network = None
        if self.comm:
            from prismllm.cluster import load as load_cluster
            from prismllm.replay import NetworkOptions

            network = NetworkOptions(load_cluster(self.comm), self.network).native()
        return _replay.Emulation(load(self.trace).graph, sorted(sandbox), network, self.warn_on_divergence)
