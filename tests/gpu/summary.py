"""Prints what the parts of tests/gpu/run.sh found as one table, and writes it as JSON. Usage: summary.py FOLDER"""

import json
import sys
from pathlib import Path


def verdict(figure: dict) -> str:
    if "limit" not in figure:
        return ""
    higher = figure.get("better") == "higher"
    met = figure["value"] >= figure["limit"] if higher else figure["value"] <= figure["limit"]
    return f"{'met' if met else 'MISSED'} ({'>=' if higher else '<='} {figure['limit']:g})"


def main() -> int:
    folder = Path(sys.argv[1])
    parts = []
    for line in (folder / "parts.txt").read_text().splitlines():
        name, code, seconds = line.split()
        output = (folder / f"{name}.out").read_text().splitlines()
        figures = [json.loads(text) for text in output if text.startswith("{")]
        parts.append({"part": name, "exit_code": int(code), "wall_s": int(seconds), "figures": figures})
    for part in parts:
        state = {0: "ran", 124: "TIMED OUT", 137: "TIMED OUT"}.get(part["exit_code"], f"FAILED ({part['exit_code']})")
        print(f"{part['part']:10} {state:12} {part['wall_s']:4d} s")
        for figure in part["figures"]:
            print(f"    {figure['name']:52} {figure['value']:12.5g} {figure['unit']:8} {verdict(figure)}")
    (folder / "gpu.json").write_text(json.dumps(parts, indent=1) + "\n")
    failed = sum(part["exit_code"] != 0 for part in parts)
    print(f"{len(parts) - failed} parts ran, {failed} did not; {folder / 'gpu.json'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
