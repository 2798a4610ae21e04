"""The communication of a backend at a place, measured and fitted: which links, latencies and processor time per message
make the simulated network (prismllm.simulate) take what the real one takes. `prism bench-comm` is its command.

    plan.py, probe.py, measure.py    what is measured, the program that does it, and running it
    progress.py                      how far its ranks have come, and who ends it where nothing goes on
    model.py, predict.py, fitting.py    a model's parameters and its cluster file, what a replay on it says, the search
    report.py                        residuals for people"""

from prismllm.comm.fitting import Fit, fit
from prismllm.comm.measure import Measured, measure
from prismllm.comm.model import CommModel
from prismllm.comm.plan import Place, Point, make_plan

__all__ = ["CommModel", "Fit", "Measured", "Place", "Point", "fit", "make_plan", "measure"]
