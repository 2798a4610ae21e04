"""From the fragments that ranks leave behind (one file each) to one trace; traces as arguments of commands."""

from __future__ import annotations

import json
import os
import re

import click

from prismllm.cli.common import claim

_FRAGMENT = re.compile(r"rank-(\d+)\.prism$")


def fragments_in(folder: str) -> list[str]:
    """The fragments in a folder, in rank order."""
    found = {int(match[1]): name for name in os.listdir(folder) if (match := _FRAGMENT.match(name))}
    return [os.path.join(folder, found[rank]) for rank in sorted(found)]


def merge_run(folder: str, output: str, notes: list[str] | None = None, more: dict | None = None,
              alike=None):  # fmt: skip
    """Joins the fragments of one run, one of every rank, and writes them to `output`; returns the graph. `more` is kept
    in the trace's metadata; `alike`: ranks that have not run (prismllm.solo.merging.Alike)."""
    from prismllm import _graph

    found = fragments_in(folder)
    if not found:
        raise ValueError(f"'{folder}' holds no recording (rank-0.prism and so on)")
    paths = [os.fsencode(path) for path in found]
    first = _graph.open(paths[0])
    there = {int(_FRAGMENT.search(path)[1]) for path in found} | {rank for rank, *_ in (alike.ranks if alike else [])}
    if missing := sorted(set(range(first.world_size)) - there):
        raise ValueError(f"'{folder}' lacks the recordings of ranks {missing} of {first.world_size}")
    each = [json.loads(_graph.open(path).metadata_json) for path in paths]
    metadata = each[0] | ({"notes": notes} if notes else {}) | (more or {})
    metadata.pop("rank", None)
    # Of ranks on several hosts the clocks cannot be compared: then one domain for each rank.
    for key in ("clock_domain", "host"):
        values = [one.get(key) for one in each]
        if len(set(values)) > 1:
            metadata[key] = values
    others = (alike.groups, alike.ranks) if alike else ()
    graph = _graph.merge(paths, first.world_size, first.progress_model, first.timed, json.dumps(metadata), *others)
    if alike is not None and notes is not None:
        try:
            _graph.validate(graph)
        except ValueError as reason:  # each rank alone did what its rules made it do
            more_ranks = "--verify K or --classes none"
            notes.append(f"the ranks do not fit together: {reason}; mend the rules, or run more with {more_ranks}")
    _graph.write(graph, os.fsencode(output))
    return graph


class TraceFile(click.ParamType):
    """A .prism file, or the folder that PRISM_RECORD named under torchrun: its fragments become DIR/trace.prism."""

    name = "TRACE"

    def convert(self, value, param, ctx):
        if not os.path.exists(value):
            self.fail(f"there is no trace '{value}'")
        try:
            if os.path.isdir(value):
                value = _merged(value)
            else:
                from prismllm import _graph

                _graph.open(os.fsencode(value))
        except (ValueError, OSError) as reason:
            self.fail(str(reason))
        claim(value, f"the {param.get_error_hint(ctx)}".replace("'", ""))
        return value


def _merged(folder: str) -> str:
    """The trace of a folder of fragments, written there when it is missing or older than they are."""
    merged = os.path.join(folder, "trace.prism")
    newest = max(map(os.path.getmtime, fragments_in(folder)), default=float("inf"))
    if not os.path.exists(merged) or os.path.getmtime(merged) < newest:
        merge_run(folder, merged)
    return merged
