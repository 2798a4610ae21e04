"""What peers send to ranks that are timed, where nobody has said it. As a rule it does not matter for time, and is made
up. Where a rank fails by it, or does something else than the trace says, each step that follows is nearer to the job
and costs more: whole numbers and objects as they were in a capture that is made for it, all as it was there, and in
the end the peers themselves."""

from __future__ import annotations

from prismllm.cli.run_folder import RunFailed
from prismllm.cli.scratch import room
from prismllm.cli.time_runs import Runs, Values
from prismllm.cli.time_written import Differs
from prismllm.launch.outcome import in_one_line
from prismllm.trace import Trace

_SMALL = 1 << 30  # bytes that all ranks put in: kept whole at once


def summary_of(runs: Runs, rules: str, given: bool, from_trace: bool) -> dict:
    """Of the first step that comes to an end. `given`: the user has said what peers send; `from_trace`: the trace has
    rules of its own."""
    values: Values | None = Values("rules" if given or from_trace else "made up", rules)
    steps = _Given() if given else _RulesOfTrace(runs, rules) if from_trace else _Captured(runs)
    while True:
        try:
            return runs.run(values)
        except (Differs, RunFailed) as failure:
            # A rank that was killed, say, is not helped by other values.
            by_itself = isinstance(failure, Differs) or failure.failure.told is not None
            values = steps.after(failure) if by_itself else None
            if values is None:
                raise


def _reason(failure: Differs | RunFailed) -> str:
    return in_one_line(str(failure.failure if isinstance(failure, RunFailed) else failure)).rstrip(".")


class _Given:
    def after(self, failure: Differs | RunFailed) -> Values | None:
        """What to try next. A failure that is followed by something is not shown, and leaves nothing."""
        return None


class _RulesOfTrace(_Given):
    """As exactly as the trace itself was captured."""

    def __init__(self, runs: Runs, rules: str):
        self.runs, self.rules = runs, rules

    def after(self, failure: Differs | RunFailed) -> Values | None:
        if self.runs is None:
            return None
        _forget(failure)
        self.runs.output.notice(f"{_reason(failure)}. Again, real numbers as well by the rules of the trace")
        self.runs = None
        return Values("rules", self.rules, quick=False)


class _Captured(_Given):
    """As in a capture that is made for it."""

    def __init__(self, runs: Runs):
        self.runs = runs
        self.most_bytes = room(runs.work) // 4  # tensors that are small lie there twice for a while
        self.folder = self.all = ""
        self.failed = False
        self.steps = [self.whole_numbers, self.everything, self.peers]

    def after(self, failure: Differs | RunFailed) -> Values | None:
        if self.steps:
            _forget(failure)
        while self.steps:
            if (values := self.steps.pop(0)(failure)) is not None:
                return values
        return None

    def whole_numbers(self, failure: Differs | RunFailed) -> Values | None:
        if not _could_differ(failure, "lacks_key") or not _could_differ(failure, "asked"):
            return None
        together = bytes_put_in(self.runs.graph) <= min(_SMALL, self.most_bytes)
        self._record(failure, "what the peers send", whole_numbers=not together)
        if self.failed or not _has_whole_numbers(self.folder):
            return None
        return Values("whole numbers", played=self.folder, whole_numbers=True)

    def everything(self, failure: Differs | RunFailed) -> Values | None:
        if not _could_differ(failure, "lacks_key") or self.failed:
            return None
        if self.all:
            self.runs.output.notice(f"{_reason(failure)}. Again, with the real numbers of the peers")
        else:
            self._record(failure, "what real numbers the peers send" if self.folder else "what the peers send")
        return None if self.failed else Values("recorded", quick=False, played=self.all)

    def peers(self, failure: Differs | RunFailed) -> Values:
        self.runs.output.notice(f"{_reason(failure)}. Timed among its peers, all of which run now")
        return Values("peers", peers=True)

    def _record(self, failure: Differs | RunFailed, what: str, whole_numbers: bool = False) -> None:
        self.runs.output.notice(f"{_reason(failure)}. Captured again, to see {what}")
        try:
            self.folder = self.runs.record(whole_numbers, self.most_bytes)
            self.all = "" if whole_numbers else self.folder
        except RunFailed as reason:
            if reason.exit_code != 4:  # the program's own
                raise
            reason.forget()
            self.failed = True
            self.runs.output.notice(_reason(reason))


def _forget(failure: Differs | RunFailed) -> None:
    if isinstance(failure, RunFailed):
        failure.forget()


def _could_differ(failure: Differs | RunFailed, what: str) -> bool:
    """Whether other values from peers could have helped the rank that failed: it has `asked` for some, and was not
    waiting for a key of the store."""
    alone = failure.failure.told.get("alone", {}) if isinstance(failure, RunFailed) else {}
    return alone.get("asked", True) if what == "asked" else not alone.get("lacks_key", False)


def _has_whole_numbers(folder: str) -> bool:
    from prismllm import data

    return any(one.dtype in data.WHOLE_NUMBERS for one in data.open(folder))


def bytes_put_in(trace: Trace) -> int:
    """By all ranks, into all communications."""
    return sum(
        int(trace.structure(cls)["comm_input_bytes"].sum()) * int((trace.rank_class == cls).sum())
        for cls in range(trace.class_count)
    )
