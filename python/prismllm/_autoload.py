"""What `import torch` runs where PrismLLM is installed (entry point torch.backends).

An exception here would break `import torch`, and everybody pays for its time: one look at the environment, silence,
and nothing else unless `prism` or the user asked for it (PRISM_ROUTE, PRISM_RECORD)."""

import os


def autoload():
    route = os.environ.get("PRISM_ROUTE") or ("real" if os.environ.get("PRISM_RECORD") else "")
    if not route or "RANK" not in os.environ:
        return
    try:
        from prismllm import takeover

        takeover.autostart(route)
    except Exception as failure:
        import sys

        print(f"prism: this process is not recorded: {failure}", file=sys.stderr)
