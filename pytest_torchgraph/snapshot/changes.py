"""What an update of a stored file changed, in one line.

Importing this module imports no graphs: whatever fails, in a project without any, comes by here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graph import Finding, Node
    from .compare import Mismatch, Subject

MOST = 3
"""How many findings, graphs or counts are named; the others are counted."""


def describe(mismatch: Mismatch) -> str:
    """What is in a new file, or how a file differs from the one that it replaces."""
    if mismatch.is_new:
        return _contents(mismatch.subject)
    try:
        findings = mismatch.diff.findings if mismatch.diff else ()
    except Exception as error:
        return f"what differs could not be found out: {brief(error)}"
    if not findings:
        lines = [line for line in mismatch.details if not line.startswith(("+", "-"))]
        some = "; ".join(" ".join(line.split()) for line in lines[:MOST])
        return f"{mismatch.problem}: {some}{_more(lines)}" if some else mismatch.problem
    noun = "finding" if len(findings) == 1 else "findings"
    return f"{len(findings)} {noun}: {', '.join(map(_finding, findings[:MOST]))}{_more(findings)}"


def _contents(subject: Subject) -> str:
    parts = [f"{graph.name} {_ops(graph.op_counts.total())}" for graph in subject.graphs]
    return ", ".join(parts[:MOST]) + _more(parts)


def _ops(count: int) -> str:
    return "1 op" if count == 1 else f"{count} ops"


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - MOST} more" if len(items) > MOST else ""


def _finding(finding: Finding) -> str:
    if finding.summary:
        return finding.summary
    before, after = finding.before, finding.after
    if before is not None and after is not None and before.op != after.op:
        what = f"{_noun(before)} to {_noun(after)}"
    else:
        what = _noun(finding.changes[0].node)
    return f"{finding.kind} {what}" + (f" in {finding.module}" if finding.module else "")


def _noun(node: Node) -> str:
    from ..graph.text import format_name, format_op

    if node.is_call:
        return format_op(node.op)
    return "the return" if node.kind == "output" else f"{node.op} %{format_name(node.name)}"


def brief(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    first = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
