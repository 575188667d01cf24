"""The end of an update that changes several stored graphs: how many, and by which causes.

Who accepts forty new graphs should see that two edits made them, and which.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..snapshot.changes import brief
from ..snapshot.run import RunRecord
from ..words import counted
from .comparisons import findings_of, left_out


def report_causes(reporter: pytest.TerminalReporter, run: RunRecord) -> None:
    """Print the causes, where an update replaced several stored graphs."""
    if len(run.replaced) < 2:
        return
    try:
        heading, *lines = _lines(run)
    except Exception as error:  # the graphs are stored all the same
        reporter.line(f"torchgraph: the causes of this update are not known: {brief(error)}")
        return
    reporter.section(heading, yellow=True)
    for line in lines:
        reporter.line(line)


def _lines(run: RunRecord) -> Iterator[str]:
    from ..graph.diff.joining import MAX_CAUSES, finding_head, join
    from ..graph.diff.words import cost_text

    every = [(path, data) for path, tests in sorted(run.replaced.items()) for _, data in tests]
    causes = join(
        [(path, finding) for path, data in every for finding in findings_of(data)],
        upgraded=[path for path, data in every if data["releases"]],
    )
    stored = {path for how, path, _ in run.stored if how != "created"} | run.replaced.keys()
    graphs = counted(len(stored), "stored graph")
    causes_known = counted(len(causes), "cause")
    yield f"this update changes {len(run.replaced)} of {graphs}, by {causes_known}"
    for old, new in sorted({tuple(data["releases"]) for _, data in every if data["releases"]}):
        yield f"torch {old} -> {new}"
    for cause in causes[:MAX_CAUSES]:
        tests = {test for path in cause.files for test, _ in run.replaced[path]}
        yield f"{finding_head(cause)} of {counted(len(tests), 'test')}"
        if costs := cost_text(cause.cost):
            yield f"    costs   {costs}"
    if left := causes[MAX_CAUSES:]:
        files = {path for cause in left for path in cause.files}
        yield f"... and {counted(len(left), 'more cause')} in {counted(len(files), 'file')}"
    if lost := sum(left_out(data) for _, data in every):
        yield f"{counted(lost, 'further finding')} not listed"
