"""What `import torch` pays for the installed package, where nobody asked for it: the autoload entry point alone."""

import json
import os
import statistics
import subprocess
import sys

MEASURE = """
import torch, time
begin = time.perf_counter()
torch._import_device_backends()  # looks entry points up and calls ours
print(time.perf_counter() - begin)
"""


def main() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PRISM_")}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # not at import, where it could not be told apart
    options = {"env": environment, "check": True, "capture_output": True, "timeout": 60}
    taken = [float(subprocess.run([sys.executable, "-c", MEASURE], **options).stdout) for _ in range(5)]
    figure = {"name": "import torch with the package installed, added", "value": 1000 * statistics.median(taken)}
    print(json.dumps(figure | {"unit": "ms", "limit": 50}))


if __name__ == "__main__":
    main()
