"""Calibration: from spans that were timed slice by slice to one timeline, with the spread that their repetitions show.

    found = prismllm.calibrate.calibrate("job.timed.prism", network=NetworkOptions(prismllm.cluster.load("model.toml")))
    found.iteration_time_s.median, found.iteration_time_s.p95
    found.trace().write("job.cal.prism")

What is drawn, executed and counted stands in docs/calibration.md.
"""

from prismllm.calibrate.calibration import Calibration, Quantiles, calibrate
from prismllm.calibrate.realignment import Realignment, realign
from prismllm.calibrate.spans import SpanQuantiles, span_quantiles

__all__ = ["Calibration", "Quantiles", "Realignment", "SpanQuantiles", "calibrate", "realign", "span_quantiles"]
