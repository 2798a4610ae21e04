"""A program under torch.profiler, as it is: which communication it does, with sizes.

prism emulate job.cal.prism --ranks 0 examples/profiled.py examples/gpt3d.py --steps 2
"""

import collections
import os
import runpy
import sys

from torch.profiler import ProfilerActivity, profile

program = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    runpy.run_path(program, run_name="__main__")

calls = collections.Counter()
took_us = collections.Counter()
for event in profiler.events():
    if event.name.startswith(("gloo:", "nccl:")):
        what = (event.name, str(event.input_shapes))
        calls[what] += 1
        took_us[what] += event.cpu_time_total
for (name, shapes), count in calls.most_common():
    print(f"{count:6} x {name:20}{took_us[name, shapes] / count / 1e3:9.3f} ms  {shapes}")
if trace := os.environ.get("PROFILE"):
    profiler.export_chrome_trace(f"{trace}.rank{os.environ['RANK']}.json")
