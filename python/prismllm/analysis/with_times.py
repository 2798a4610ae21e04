"""Times for traces that have none."""

from __future__ import annotations

from prismllm.trace import Trace

RECORDED = "Times are those of a real run: spans are what each rank was seen doing."
CALIBRATED = (
    "Times are calibrated: spans were measured, and what is shown is an execution of the whole job with them, in which "
    "waits follow from the dependencies."
)
REPLAYED = (
    "This trace comes from a capture: its compute spans are processor time on the capturing machine and its transfers "
    "were not timed. What is shown is a replay of it, in which waits follow from the dependencies and transfers from "
    "assumed links; read it as structure and proportion, not as measurement."
)


def with_times(trace: Trace) -> tuple[Trace, str]:
    """The trace itself if it is timed, else its replay; and a sentence on what its spans mean."""
    if trace.timed:
        return trace, CALIBRATED if trace.metadata.get("calibrated") else RECORDED
    from prismllm.replay import retimed

    return retimed(trace), REPLAYED
