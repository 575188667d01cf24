"""The end of an update that changes several stored graphs: how many, and by which causes.

Who accepts forty new graphs should see that two edits made them, and which.
"""

from __future__ import annotations

import pytest

from ..snapshot.run import RunRecord
from .causes import findings_of


def report_causes(reporter: pytest.TerminalReporter, run: RunRecord) -> None:
    """Print the causes, where an update replaced several stored graphs."""
    if len(run.replaced) < 2:
        return
    from ..graph.diff.cause_table import MAX_CAUSES, cause_head, counted
    from ..graph.diff.described import causes_in_words

    every = [(path, data) for path, tests in sorted(run.replaced.items()) for _, data in tests]
    causes = causes_in_words(
        [(path, finding) for path, data in every for finding in findings_of(data)],
        upgraded=[path for path, data in every if data["releases"]],
    )
    stored = {path for how, path, _ in run.stored if how != "created"} | run.replaced.keys()
    reporter.section(
        f"this update changes {len(run.replaced)} of {counted(len(stored), 'stored graph')}, "
        f"by {counted(len(causes), 'cause')}",
        yellow=True,
    )
    for pair in sorted({tuple(data["releases"]) for _, data in every if data["releases"]}):
        reporter.line("torch {} -> {}".format(*pair))
    for cause in causes[:MAX_CAUSES]:
        tests = {test for path in cause.files for test, _ in run.replaced[path]}
        reporter.line(f"{cause_head(cause)} of {counted(len(tests), 'test')}")
    left = causes[MAX_CAUSES:]
    if left:
        files = {path for cause in left for path in cause.files}
        reporter.line(
            f"... and {counted(len(left), 'more cause')} in {counted(len(files), 'file')}"
        )
    lost = sum(data["left"] for _, data in every)
    if lost:
        reporter.line(f"{counted(lost, 'further finding')} not listed")
