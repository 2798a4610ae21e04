"""prismllm.spin(): how long it takes at least, what it returns, and that replays reach it by name."""

import subprocess
import sys
import time
import types

import pytest

import prismllm
from prismllm import spinning


def test_it_takes_at_least_that_long():
    for seconds in (0, 1e-5, 0.003):
        begin = time.perf_counter()
        assert prismllm.spin(seconds) is None
        assert time.perf_counter() - begin >= seconds


def test_as_an_identity_it_takes_time_on_the_way_back_too():
    import torch

    x = torch.ones(3, requires_grad=True)
    begin = time.perf_counter()
    y = prismllm.spin(0.004, backward_s=0.006, x=x)
    forward = time.perf_counter()
    (2 * y).sum().backward()
    assert forward - begin >= 0.004 and time.perf_counter() - forward >= 0.006
    assert torch.equal(y, x) and x.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", None, True])
def test_times_that_are_none_are_refused(seconds):
    with pytest.raises(ValueError, match=r"spin: seconds = .*; accepted: 0 to 3600 seconds"):
        prismllm.spin(seconds)


def test_other_wrong_use_is_refused():
    with pytest.raises(ValueError, match=r"backward_s = 0\.1 without x; accepted: with a tensor x"):
        prismllm.spin(0.1, 0.1)
    for device in ("mps:0", "cuda:", "cuda:first", 0, ""):
        with pytest.raises(ValueError, match=f"spin: device '{device}'; accepted: cpu, cuda"):
            prismllm.spin(0.1, device=device)


@pytest.mark.parametrize("name", ["", None, 3, b"attention", "\udc80", "x" * 1001])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match=r"spin: name = .*; accepted: text of 1 to 1000 bytes"):
        prismllm.spin(0.1, name=name)


def test_what_is_no_tensor_and_a_second_device_are_refused():
    import torch

    for x in ([1.0], 3, "x"):
        with pytest.raises(ValueError, match=r"spin: x = .*; accepted: a tensor"):
            prismllm.spin(0.1, x=x)
    with pytest.raises(ValueError, match="spin: device = 'cpu' beside x, whose device it is; accepted: one of them"):
        prismllm.spin(0.1, x=torch.ones(1), device="cpu")
    with pytest.raises(ValueError, match="spin: device 'meta'; accepted: cpu, cuda"):
        prismllm.spin(0.1, x=torch.ones(1, device="meta"))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    import torch

    cuda = types.SimpleNamespace(is_initialized=lambda: False, is_available=lambda: False)
    monkeypatch.setattr(torch, "cuda", cuda)
    with pytest.raises(ValueError, match="spin: device 'cuda:1', and torch sees no GPU; accepted: cpu"):
        prismllm.spin(0.1, device="cuda:1")


def test_without_tensors_torch_is_not_imported():
    program = "import sys, prismllm; prismllm.spin(0.001); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_on_a_device_it_is_a_kernel_of_as_many_cycles_as_its_clock_has_in_that_time(monkeypatch):
    """Against a stand-in for the device, with a clock of 1.4 GHz."""
    import torch

    sleeps, clock = [], {"ms": 0.0}

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            self.at = clock["ms"]

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return end.at - self.at

    def sleep(cycles):
        sleeps.append(cycles)
        clock["ms"] += cycles / 1.4e6

    nothing = type("Nothing", (), {"__enter__": lambda self: None, "__exit__": lambda *_: None})
    cuda = types.SimpleNamespace(
        is_current_stream_capturing=lambda: False, current_device=lambda: 0, Stream=lambda device: None, Event=Event,
        stream=lambda stream: nothing(), device=lambda index: nothing(), _sleep=sleep, is_initialized=lambda: True,
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    spinning._cycles_per_second.cache_clear()
    prismllm.spin(0.010)
    prismllm.spin(0.001, device="cuda:0")
    spinning._cycles_per_second.cache_clear()
    assert sleeps[-2:] == [14_000_000, 1_400_000]


PROGRAM = """
import torch
import torch.distributed as dist
import prismllm

dist.init_process_group("gloo")
x = torch.ones(4, requires_grad=True)
for step in range(3):
    prismllm.iteration()
    y = prismllm.spin(0.002, backward_s=0.003, x=x, name="attention")
    y.sum().backward()
    dist.all_reduce(x.grad)
prismllm.iteration()
"""


def test_a_captured_spin_is_a_span_that_edits_set_by_name(captured):
    from prismllm.replay import Edit, replay

    trace = captured(PROGRAM, world=2)[0]
    names = [trace.rank(1).name_of(node) for node in range(len(trace.rank(1).node_kind))]
    assert names.count("attention") == 3 and names.count("attention.backward") == 3
    edits = [Edit(name="attention", set_s=5), Edit(name="attention.backward", set_s=7)]
    for before, after in zip(replay(trace).iterations, replay(trace, edits).iterations, strict=True):
        assert 12 <= after.time_s <= 12 + before.time_s
    with pytest.raises(ValueError, match="matches no compute span"):
        replay(trace, [Edit(name="atention")])
