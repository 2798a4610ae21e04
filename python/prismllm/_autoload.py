"""What `import torch` runs where PrismLLM is installed (entry point torch.backends).

An exception here would break `import torch`, and everybody pays for its time: one look at the environment, silence,
and nothing else unless `prism` or the user asked for it (PRISM_ROUTE, PRISM_RECORD)."""

import os


def autoload():
    route = os.environ.get("PRISM_ROUTE") or ("real" if os.environ.get("PRISM_RECORD") else "")
    try:
        if not route or "RANK" not in os.environ:
            return _name_prism()
        from prismllm import takeover

        takeover.autostart(route)
    except Exception as failure:
        import sys

        print(f"prism: this process is not recorded: {failure}", file=sys.stderr)


def _name_prism():
    """backend="prism", where torch (before 2.14) does not ask entry points for it."""
    import sys

    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and not hasattr(c10d.Backend, "_ensure_backend_registered"):
        from prismllm import creators_before_214

        creators_before_214.name_prism()
