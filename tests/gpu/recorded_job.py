"""A job whose compute is known: spans of matrix products, timed by the device itself, with an all-reduce after each.

Prints RESULT {"flop", "alone_s", "spans_s"}: the work of a span, its time before any communication (median), and the
time of each span that a recording should show between two all-reduces.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist

PRODUCTS = 10  # per span


class Spans:
    def __init__(self, device: str, size: int):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.device, self.size = device, size
        self.a, self.b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        self.out = torch.empty_like(self.a)

    def flop(self) -> int:
        return 2 * self.size**3 * PRODUCTS

    def work(self) -> None:
        for _ in range(PRODUCTS):
            torch.mm(self.a, self.b, out=self.out)

    def timed(self) -> float:
        """Seconds of one span: between CUDA events on the stream, or of the host where the host computes."""
        if self.device == "cpu":
            begin = time.perf_counter()
            self.work()
            return time.perf_counter() - begin
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--spans", type=int, default=30)
    args = parser.parse_args()
    if args.device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    spans = Spans(args.device, args.size)
    x = torch.ones(1024, device=args.device)
    dist.all_reduce(x)
    spans.timed()  # clocks up, libraries loaded
    alone = statistics.median(spans.timed() for _ in range(args.spans))
    dist.all_reduce(x)
    times = []
    for _ in range(args.spans):
        times.append(spans.timed())
        dist.all_reduce(x)
    assert x[0].item() == dist.get_world_size() ** (args.spans + 2)
    print("RESULT " + json.dumps({"flop": spans.flop(), "alone_s": alone, "spans_s": times}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
