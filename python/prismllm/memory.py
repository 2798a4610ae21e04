"""Memory of a rank: where it ends (`--memory-limit`), and the most that it held. docs/memory.md says what counts.

The launcher sets PRISM_MEMORY_LIMIT and PRISM_COMMUNICATOR_MEMORY (of each group), both in bytes."""

from __future__ import annotations

import os


def limit_bytes() -> int | None:
    return _bytes("PRISM_MEMORY_LIMIT")


def _bytes(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{variable} is '{text:.40}'; accepted: bytes")
    return int(text)


def start(rank: int) -> None:
    """Once the rank's recording has begun, before its program."""
    from prismllm import _c10d

    device = None if (limit := limit_bytes()) is None else _DeviceLimit(rank, limit)
    _c10d.start_communicators(
        rank=rank,
        ranks_per_node=int(os.environ.get("LOCAL_WORLD_SIZE") or 1),
        each=_bytes("PRISM_COMMUNICATOR_MEMORY"),
        changed=device and device.communicators_hold,
    )
    if device:
        import torch

        torch.cuda._lazy_call(device.begin)


class _DeviceLimit:
    """Of a rank whose tensors are on a CUDA device: torch's allocator there keeps to a limit of its own, on what it has
    reserved; communicators take their part of it."""

    def __init__(self, rank: int, bytes_: int):
        self.rank, self.bytes = rank, bytes_
        self.device: int | None = None  # once CUDA has been initialised

    def begin(self) -> None:
        from prismllm import _c10d

        _c10d.set_memory_limit(None)  # tensors of the CPU are in the host's memory
        self.device = own_device()
        self.communicators_hold(_c10d.memory_in_use()["communicators"])

    def communicators_hold(self, communicators: int) -> None:
        if self.device is None:
            return
        import torch

        reserved = torch.cuda.memory_reserved(self.device)
        if reserved + communicators > self.bytes:
            raise torch.OutOfMemoryError(
                f"rank {self.rank} is out of memory. Its communicators would hold {communicators} bytes of cuda:"
                f"{self.device}, and torch's allocator has reserved {reserved}, of a limit of {self.bytes} bytes"
            )
        total = torch.cuda.get_device_properties(self.device).total_memory
        # The allocator takes the whole bytes of the product.
        part = min(1.0, (self.bytes - communicators + 0.5) / total)
        torch.cuda.set_per_process_memory_fraction(part, self.device)


def own_device() -> int:
    """The CUDA device of this rank, as launchers bind ranks to devices."""
    import torch

    return int(os.environ.get("LOCAL_RANK") or 0) % max(1, torch.cuda.device_count())


def figures() -> dict[str, int]:
    """The most that this rank held, in bytes; nothing where nothing was counted. Without an accelerator no allocator
    keeps more than tensors take."""
    import torch

    from prismllm import _c10d

    if (in_use := _c10d.memory_in_use()) is None:
        return {}
    allocated = reserved = in_use["tensors_peak"]
    total = in_use["peak"]
    if torch.cuda.is_initialized():
        device = own_device()
        allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        total = reserved + in_use["communicators_peak"]
    return {
        "peak_memory_bytes": allocated,
        "peak_reserved_bytes": reserved,
        "communicator_bytes": in_use["communicators_peak"],
        "peak_total_bytes": total,
    }
