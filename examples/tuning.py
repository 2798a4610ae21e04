"""Which configuration? Time and memory of several, each captured, timed, calibrated and emulated: no job of all ranks
runs for real.

    python examples/tuning.py                                # the choices of tuned_gpt.py
    python examples/tuning.py --only baseline,recompute -- --attention-ms 20
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM, NETWORK = HERE / "tuned_gpt.py", HERE / "clusters" / "four_hosts.toml"
RANKS, REAL = 4, 0  # rank 0 keeps most micro-batches alive: it needs the most memory
CONFIGURATIONS = {
    "baseline": [],
    "offload": ["--offload"],
    "recompute": ["--recompute"],
    "p2p overlap": ["--overlap-p2p"],
    "fast library": ["--library", "fast"],
}


def run_prism(*words):
    done = subprocess.run([sys.executable, "-m", "prismllm", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def measure(folder, arguments, prism=run_prism):
    """What the program with these arguments takes: seconds of an iteration, calibrated and emulated, and bytes."""
    captured, timed, calibrated = (folder / f"{name}.prism" for name in ("captured", "timed", "calibrated"))
    figures = folder / "figures.json"
    result = ("--quiet", "--json", figures)
    prism("capture", "-n", RANKS, "--slots", 2, "-o", captured, "--quiet", PROGRAM, *arguments)
    prism("time", captured, "--slots", 2, "-o", timed, "--quiet")
    prism("calibrate", timed, "--comm", NETWORK, "-o", calibrated, *result)
    of_all = json.loads(figures.read_text())
    prism("emulate", calibrated, "--ranks", REAL, "--comm", NETWORK, "-o", folder / "emulated.prism", *result)
    (of_one,) = json.loads(figures.read_text())["sandbox"]
    return {
        "calibrated_s": of_all["iteration_time_s"]["median"],
        "emulated_s": of_one["iter_s"],
        "peak_memory_bytes": of_one["peak_memory_bytes"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CONFIGURATIONS), help="some of: %(default)s")
    parser.add_argument("arguments", nargs="*", help="of tuned_gpt.py, for all of them")
    chosen = parser.parse_args()
    print(f"{'configuration':14}{'calibrated':>12}{'emulated':>12}{'peak memory':>14}", flush=True)
    for name in chosen.only.split(","):
        if name not in CONFIGURATIONS:
            parser.error(f"--only: '{name}'; accepted: {', '.join(CONFIGURATIONS)}")
        with tempfile.TemporaryDirectory() as folder:
            one = measure(pathlib.Path(folder), [*CONFIGURATIONS[name], *chosen.arguments])
        times = (f"{one[key] * 1e3:9.1f} ms" for key in ("calibrated_s", "emulated_s"))
        print(f"{name:14}{''.join(times)}{one['peak_memory_bytes'] / 2**20:10.2f} MiB", flush=True)


if __name__ == "__main__":
    main()
