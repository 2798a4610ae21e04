"""PrismLLM: emulates large-scale LLM training on a few devices. Importing this imports nothing else."""

__version__ = "0.1.0"
__all__ = ["__version__", "iteration", "load", "spin"]


def load(path):
    """Opens a `.prism` trace (prismllm.trace)."""
    from prismllm.trace import load

    return load(path)


def iteration():
    """A training iteration begins here: marks it in the recording; does nothing where nothing is recorded."""
    import sys

    if adapter := sys.modules.get("prismllm._c10d"):
        adapter.mark_iteration()


def spin(seconds, backward_s=0.0, x=None, *, name="spin", device=None):
    """Stands in for a kernel: takes `seconds` of the device, and x's gradient `backward_s` (prismllm.spinning)."""
    from prismllm.spinning import spin

    return spin(seconds, backward_s, x, name=name, device=device)
