"""Truth beside emulation: a job runs for real, again and again, and is emulated without a look at these runs.

    real = real_runs(plan, steps)                # [prismllm.validate.Execution, ...]
    predictions = predicted(plan, steps)         # "calibrated", and "emulated" if chosen ranks run for real
    rows = table(real, predictions, plan.sandbox)

Each step is a command of its own (`prism record`, `capture`, `time`, ...) that is told the paths of its own files
alone. What the figures mean stands in docs/validate.md.
"""

from prismllm.validate.comparison import table
from prismllm.validate.execution import Execution, Prediction
from prismllm.validate.plan import Plan
from prismllm.validate.printed import losses
from prismllm.validate.rows import Figure, Row, to_tsv
from prismllm.validate.stages import predicted, real_runs
from prismllm.validate.steps import StepFailed, Steps

__all__ = [
    "Execution",
    "Figure",
    "Plan",
    "Prediction",
    "Row",
    "StepFailed",
    "Steps",
    "losses",
    "predicted",
    "real_runs",
    "table",
    "to_tsv",
]
