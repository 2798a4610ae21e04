"""PrismLLM: emulates large-scale LLM training on a few devices. Importing this imports nothing else."""

__version__ = "0.1.0"
__all__ = ["__version__", "iteration", "load"]


def load(path):
    """Opens a `.prism` trace (prismllm.trace)."""
    from prismllm.trace import load

    return load(path)


def iteration():
    """A training iteration begins here: marks it in the recording; does nothing where nothing is recorded."""
    import sys

    if adapter := sys.modules.get("prismllm._c10d"):
        adapter.mark_iteration()
