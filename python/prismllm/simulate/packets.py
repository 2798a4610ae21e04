"""Where the program of the network "ns3" is: prism-ns3, of the package prismllm-ns3 in ns3/."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

PROGRAM = "prism-ns3"


def program_of(network: str) -> str:
    """The program that `network` needs, "" for none: beside this interpreter, else on PATH. ValueError where it is
    absent."""
    if network != "ns3":
        return ""
    beside = str(Path(sys.executable).parent) if sys.executable else ""
    path = os.pathsep.join(part for part in (beside, os.environ.get("PATH", "")) if part)
    if found := shutil.which(PROGRAM, path=path):
        return os.path.abspath(found)
    raise ValueError(
        f"network 'ns3' needs the program {PROGRAM}, which is neither beside {sys.executable} nor on PATH; "
        "'make ns3' or 'pip install ./ns3' in PrismLLM's source tree installs it"
    )
