"""What recording costs a training job: blocks of steps with and without it alternate inside one run.

Ranks (Gloo on CPU, NCCL on one GPU) train a DistributedDataParallel model whose layers sleep, so that ranks
fight less for cores; a step takes about 20 ms on two. Blocks of one pair follow each other closely, in turn, so that
what else the machine does falls on both. Printed are the mean relative difference of the pairs and its one-sided
95% bound, twice: of the time that steps take, and of the processor time that a rank spends in them (all its threads, as
a share of the step). Recording only computes while a step runs, so the second says the same as the first, without the
noise of ranks that wait for a free core: where cores are few, the first needs ten times the pairs for the same bound.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYERS = 4
LIMIT_PERCENT = 0.5


def step_maker(device: str, sleep_s: float):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(128, 128)

        def forward(self, x):
            time.sleep(sleep_s / LAYERS)  # stands for compute; also under the autograd graph that follows
            return torch.relu(self.linear(x))

    torch.manual_seed(0)
    # Small buckets: several all-reduces per backward, as in a large model.
    model = DistributedDataParallel(
        torch.nn.Sequential(*(Layer() for _ in range(LAYERS))).to(device), bucket_cap_mb=0.1
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(16, 128, device=device)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def run_rank(options) -> None:
    import torch
    import torch.distributed as dist

    from prismllm import _c10d, takeover

    takeover.install("real")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "nccl" if options.device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{options.folder}/rendezvous", rank=rank, world_size=world)
    step = step_maker(options.device, options.sleep_ms / 1000)

    def block(recorded: bool) -> tuple[float, float]:
        """Seconds per step: elapsed, and of this rank's processor time."""
        if recorded:
            path = f"{options.folder}/rank-{rank}.prism"
            _c10d.start_recorder(rank, world, path, timed=True, progress_model=backend, metadata="{}")
        dist.barrier()
        begin, begin_cpu = time.monotonic(), time.process_time()
        for _ in range(options.steps):
            step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        elapsed, cpu = time.monotonic() - begin, time.process_time() - begin_cpu
        if recorded:
            _c10d.finish_recorder()
        return elapsed / options.steps, cpu / options.steps

    block(True), block(False)  # lazy initialisation of both
    pairs = []
    for index in range(options.pairs):
        times = {recorded: block(recorded) for recorded in ((True, False) if index % 2 else (False, True))}
        pairs.append((times[False], times[True]))
    Path(options.folder, f"pairs-{rank}.json").write_text(json.dumps(pairs))
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(options) -> list:
    """[rank][pair][without, with recording] -> (elapsed, processor time)."""
    command = [sys.executable, __file__, "--device", options.device, "--pairs", str(options.pairs)]
    command += ["--steps", str(options.steps), "--sleep-ms", str(options.sleep_ms), "--folder", options.folder]
    ranks = []
    try:
        for rank in range(options.ranks):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(options.ranks), "OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen(command, env=environment, stdout=sys.stderr))
        deadline = time.monotonic() + options.timeout
        for rank, process in enumerate(ranks):
            if code := process.wait(max(0.0, deadline - time.monotonic())):
                sys.exit(f"bench_recording: rank {rank} exited with {code}")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return [json.loads(Path(options.folder, f"pairs-{rank}.json").read_text()) for rank in range(options.ranks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=120, help="pairs of blocks, one with and one without recording")
    parser.add_argument("--steps", type=int, default=10, help="steps per block")
    parser.add_argument("--sleep-ms", type=float, default=8, help="of a step; choose it so that steps take 20 ms")
    parser.add_argument("--timeout", type=float, default=240, help="seconds that the whole run may take")
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # given to the ranks
    options = parser.parse_args()
    if options.folder:
        return run_rank(options)
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as options.folder:
        ranks = run_ranks(options)
    step = statistics.mean(off[0] for off, _ in ranks[0])
    job = f"{options.ranks} ranks, {1000 * step:.1f} ms steps"
    # Ranks leave a step together, so one rank's elapsed time is the job's; processor time is the mean over the ranks.
    print_figures("recording, time", job, [100 * (on[0] - off[0]) / step for off, on in ranks[0]])
    pairs = [
        [statistics.mean(cpu for _, cpu in blocks) for blocks in zip(*pair, strict=True)]
        for pair in zip(*ranks, strict=True)
    ]
    print_figures("recording, processor time", job, [100 * (on - off) / step for off, on in pairs])


def print_figures(name: str, job: str, differences: list[float]) -> None:
    mean, error = statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
    print(json.dumps({"name": f"{name} ({job}): mean", "value": mean, "unit": "%"}))
    bound = mean + 1.645 * error
    print(json.dumps({"name": f"{name}: 95% upper bound", "value": bound, "unit": "%", "limit": LIMIT_PERCENT}))


if __name__ == "__main__":
    main()
