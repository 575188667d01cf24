"""The heading of a difference: edits and places counted, and what changed, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...words import counted, listed
from ..model import Node
from ..module_paths import common_path
from ..text.format import format_name, format_op
from .findings import SIGNS, Finding, ops_of
from .words import TOP, count_changes, places_text

MAX_NAMED_OPS = 2
"""How many ops are named that went, or that came in their place; more are counted."""


def heading(findings: Sequence[Finding]) -> str:
    """See `GraphDiff.heading`."""
    if not findings:
        return "no difference"
    modules = [finding for finding in findings if finding.modules]
    graphs = [finding for finding in findings if finding.of_graph]
    edits = [finding for finding in findings if not finding.modules and not finding.of_graph]
    parts = [finding.summary for finding in modules]
    if edits:
        parts.append(_edits(edits))
    if graphs:
        parts.append(_graphs(graphs))
    return "; ".join(parts)


def edit_name(finding: Finding) -> str:
    """What an edit did, without its place: `aten.gelu -> aten.relu`, `aten.clone added`."""
    if finding.summary:
        return finding.summary
    change, rest = finding.changes[0], ops_of(finding.changes[1:])
    before, after = change.before, change.after
    if before is not None and after is not None and before.op != after.op:
        first = f"{node_name(before)} -> {node_name(after)}"
        return f"{first} (and {count_changes(rest)})" if rest else first
    came, went = (
        [other.node for other in (change, *rest) if other.kind == kind]
        for kind in ("added", "removed")
    )
    if came and went:
        first = f"{_some(went)} -> {_some(came)}"
        others = [other for other in rest if other.kind not in ("added", "removed")]
    else:
        same = sum(other.kind == change.kind for other in rest)
        more = f" and {counted(same, 'more op')}" if same else ""
        first = f"{node_name(change.node)}{more} {change.kind}"
        others = [other for other in rest if other.kind != change.kind]
    return f"{first} (and {count_changes(others)})" if others else first


def _some(nodes: Sequence[Node]) -> str:
    if len(nodes) > MAX_NAMED_OPS:
        return f"{len(nodes):,} ops"
    return " and ".join(map(node_name, nodes))


def node_name(node: Node) -> str:
    """A node in a heading: its op without `.default`, or which input or output it is."""
    if node.is_call:
        return format_op(node.op).removesuffix(".default")
    if node.kind == "output":
        return "the return"
    return f"{node.op} %{format_name(node.name)}"


def _edits(edits: Sequence[Finding]) -> str:
    count = sum(len(edit.places) for edit in edits)
    head = counted(len(edits), "edit")
    if count > len(edits):
        head += f" in {count:,} places"
    if len(edits) == 1:
        (edit,) = edits
        where = TOP if edit.summary else places_text(edit)
        return f"{head}: {edit_name(edit)}" + (f" in {where}" if where != TOP else "")
    names = list(dict.fromkeys(map(edit_name, edits)))
    named = listed(names, 3)
    where = common_path(place.module for edit in edits for place in edit.places)
    return f"{head}: {named}" + (f" in {where}" if where else "")


def _graphs(findings: Sequence[Finding]) -> str:
    """`2 graphs added, 1 changed`."""
    counts = Counter(finding.kind for finding in findings)
    parts = [f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind]]
    first, _, rest = parts[0].partition(" ")
    parts[0] = f"{first} {'graph' if first == '1' else 'graphs'} {rest}"
    return ", ".join(parts)
