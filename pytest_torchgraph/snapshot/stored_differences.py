"""Stored differences: `assert diff(before, after) == graph_snapshot`.

The text of a difference is small, and shows what a compiler pass does. It has no source lines,
which would change with every edit above them.
"""

from __future__ import annotations

from ..graph.diff import GraphDiff
from .compare import text_difference


def stored_difference(difference: GraphDiff) -> str:
    """Return the text to store for a difference.

    Raises:
        AssertionError: if there is no difference.
    """
    if not difference:
        raise AssertionError(
            "nothing to compare, because there is no difference: check with "
            "`assert not diff(before, after)`, or check_pass(..., changes={})"
        )
    text = difference.to_text(limit=None)
    # Remove where the code of each finding is: a part of its line, or a line of its own.
    for finding in difference.findings:
        if (cut := finding.graph_break) is not None:
            text = text.replace(f" at {cut.file}:{cut.line}", "")
        if finding.source is not None:
            line = f"  {finding.source}: {finding.source.code}".rstrip(": ")  # code may be ""
            text = text.replace(f"{line}\n", "\n").removesuffix(line)
    return text + "\n"


def difference_lines(stored: str | None, text: str, path: str, remedy: str) -> list[str]:
    """Return the message of a failed comparison of differences."""
    if stored is None:
        problem = f"no difference is stored for this comparison yet ({path}):"
        return [problem, *text.splitlines(), remedy]
    problem = f"the difference is not the stored one ({path}):"
    return [problem, *text_difference(stored, text), remedy]
