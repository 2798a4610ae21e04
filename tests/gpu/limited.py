"""A rank under --memory-limit that takes blocks of memory until there is no more, frees half of them and goes on.
Prints RESULT {"blocks", "again", "allocated", "reserved"}: how many there were, and the allocator's own peaks, in
bytes."""

import argparse
import json

import torch


def take(blocks: list[torch.Tensor], size: int, device: str) -> int:
    before = len(blocks)
    try:
        while True:
            blocks.append(torch.empty(size, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError:
        return len(blocks) - before


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--block", type=int, required=True)
    args = parser.parse_args()
    blocks: list[torch.Tensor] = []
    first = take(blocks, args.block, args.device)
    peak = first * args.block  # no allocator keeps a tally on the CPU
    del blocks[: first // 2]
    again = take(blocks, args.block, args.device)
    allocated = torch.cuda.max_memory_allocated() if args.device == "cuda" else peak
    reserved = torch.cuda.max_memory_reserved() if args.device == "cuda" else peak
    result = {"blocks": first, "again": again, "allocated": allocated, "reserved": reserved}
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
