# SPDX-License-Identifier: GPL-2.0-only
"""The program prism-ns3, which lies beside this file; ../README.md says what it understands."""

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "prism-ns3"


def main() -> None:
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])
