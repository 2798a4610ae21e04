"""prismllm.spin(): stands in for a kernel in a real program, to ask what the job would take if it took so long."""

from __future__ import annotations

import functools
import re
import sys
import time
from numbers import Real

_MOST_S = 3600.0
_LONGEST_NAME = 1000
# A sleep ends 50 to 100 us late: it is made shorter by more than that, and the rest is spun (2 to 4 us late then).
_SPUN_S = 200e-6


def spin(seconds: float, backward_s: float = 0.0, x=None, *, name: str = "spin", device=None):
    """Takes `seconds` of the device that computes and does nothing else.

    On an accelerator (the device of the tensor `x`, or `device`; else the current one where the program has used it) it
    is a kernel on the current stream, for which the host does not wait, of as many clock cycles as the device has in
    that time: measured at the first call, and wrong where the clock changes later. Elsewhere the calling thread sleeps.

    With a tensor x it returns x, and its gradient takes `backward_s` on the way back. Under `prism record` and `prism
    capture` this is a span called `name`, the one of the backward `name.backward`, which edits of a replay can set
    (docs/what_if.md)."""
    for key, value in (("seconds", seconds), ("backward_s", backward_s)):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= _MOST_S:
            raise ValueError(f"spin: {key} = {value!r}; accepted: 0 to {_MOST_S:g} seconds")
    _check_name(name)
    if x is None and backward_s:
        raise ValueError(f"spin: backward_s = {backward_s!r} without x; accepted: with a tensor x")
    if x is not None:
        torch = sys.modules.get("torch")
        if not (torch and isinstance(x, torch.Tensor)):
            raise ValueError(f"spin: x = {_shown(x)}; accepted: a tensor")
        if device is not None:
            raise ValueError(f"spin: device = {_shown(device)} beside x, whose device it is; accepted: one of them")
        _kind(x.device)
        return _identity().apply(x, float(seconds), float(backward_s), name)
    device = _used_accelerator() if device is None else device
    _kind(device)
    _take(seconds, name, device)
    return None


def _shown(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _check_name(name) -> None:
    try:
        good = isinstance(name, str) and 0 < len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        good = False
    if not good:
        raise ValueError(f"spin: name = {_shown(name)}; accepted: text of 1 to {_LONGEST_NAME} bytes")


def _kind(device) -> str:
    """cpu or cuda; the device is a torch.device, its name, or None."""
    match = re.fullmatch(r"(cpu|cuda)(:[0-9]{1,4})?", str("cpu" if device is None else device))
    if not match:
        raise ValueError(f"spin: device {_shown(str(device))}; accepted: cpu, cuda, cuda:0, ...")
    return match[1]


def _take(seconds: float, name: str, device) -> None:
    recorder = sys.modules.get("prismllm._c10d")
    if recorder:
        recorder.name_next_span(name)
    try:
        if _kind(device) == "cuda":
            _spin_on_device(seconds, device)
        else:
            _sleep(seconds)
    finally:
        if recorder:
            recorder.name_next_span("")


def _sleep(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        if left > _SPUN_S:
            time.sleep(left - _SPUN_S)


def _used_accelerator():
    torch = sys.modules.get("torch")
    return "cuda" if torch and torch.cuda.is_initialized() else None


def _spin_on_device(seconds: float, device) -> None:
    import torch

    if not torch.cuda.is_initialized() and not torch.cuda.is_available():
        raise ValueError(f"spin: device {_shown(str(device))}, and torch sees no GPU; accepted: cpu")
    index = torch.device(device).index
    with torch.cuda.device(torch.cuda.current_device() if index is None else index):
        cycles = round(seconds * _cycles_per_second(torch.cuda.current_device()))
        if cycles:
            torch.cuda._sleep(cycles)


@functools.cache
def _cycles_per_second(device: int) -> float:
    """Of the kernel's own counter, once its clock has come up."""
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("spin: its first call measures the device's clock, which a graph cannot capture; call it "
                           "once before")  # fmt: skip
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # some 60 ms
        rates = []
        for cycles in (10_000_000, 20_000_000, 10_000_000):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            torch.cuda._sleep(cycles)
            end.record(stream)
            end.synchronize()
            rates.append(cycles / begin.elapsed_time(end) * 1e3)
    return sorted(rates)[1]


@functools.cache
def _identity():
    import torch

    class Spin(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, seconds, backward_s, name):
            ctx.spin = (backward_s, f"{name}.backward")
            _take(seconds, name, x.device)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            backward_s, name = ctx.spin
            _take(backward_s, name, gradient.device)
            return gradient, None, None, None

    return Spin
