"""A mock router: a mixture of experts whose tokens go to experts in given shares, to the token (PrismLLM paper,
section 9 and appendix F).

    # rules.py, for `prism capture --inputs`
    from prismllm import moe

    moe.mock_router("*.router", moe.skewed(experts=64, minimum=0.002, maximum=0.08), top_k=2)

Or in a program of your own: moe.wrap(model, "*.router", shares, top_k=2)."""

from prismllm.moe.shares import Shares, assigned, counts_of, dropped, recorded, skewed

__all__ = ["Shares", "assigned", "counts_of", "dropped", "mock_router", "recorded", "skewed", "wrap"]


def __getattr__(name: str):
    if name in ("mock_router", "wrap"):  # they need torch
        from prismllm.moe import router

        return getattr(router, name)
    raise AttributeError(f"module 'prismllm.moe' has no attribute '{name}'")
