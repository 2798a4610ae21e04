import os
import sys
from pathlib import Path

# What torch's suite reads when it is imported.
# It decides by the backend's name, as it is imported, which tests are none of a backend's; what we serve as "prism" is
# judged by the tests that are Gloo's.
os.environ["PRISM_CONFORMANCE_NAME"] = os.environ.get("BACKEND") or "gloo"
os.environ["BACKEND"] = "gloo"
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))  # worlds.py
