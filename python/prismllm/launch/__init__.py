"""Launching N logical ranks from one warm process. `launch()` runs in the command line's process, `zygote` imports
torch once and forks, `rank` and `coordinator` are what its children do."""

from prismllm.launch.options import LaunchOptions, RunFolder
from prismllm.launch.outcome import LaunchError
from prismllm.launch.program import Program
from prismllm.launch.supervisor import Company, LaunchResult, launch

__all__ = ["Company", "LaunchError", "LaunchOptions", "LaunchResult", "Program", "RunFolder", "launch"]
