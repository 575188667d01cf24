"""The heading and the text of a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...words import counted, format_ranks
from ..model import Node
from ..module_paths import common_path
from ..text.format import format_name, format_op
from .findings import SIGNS, FilesDiff, Finding, GraphDiff, ops_of
from .words import TOP, count_changes, places_text

MAX_NAMED = 3
"""How many edits are named in a heading; the others are counted."""


MAX_NAMED_OPS = 2
"""How many ops are named that went, or that came in their place; more are counted."""


def diff_heading(diff: GraphDiff) -> str:
    """See `GraphDiff.heading`."""
    files = diff.files
    if files is None or not (files.of_directories or files.counts):
        return heading(diff.findings)
    if not files.of_directories:
        return "; ".join([*([heading(diff.findings)] if diff.findings else []), "op counts differ"])
    parts = []
    if files.changed:
        verb = "differs" if len(files.changed) == 1 else "differ"
        causes = f" by {counted(len(diff.findings), 'cause')}" if diff.findings else ""
        total = counted(len(files.compared), "file")
        parts.append(f"{len(files.changed):,} of {total} {verb}{causes}")
    for word, names in (("added", files.added), ("removed", files.removed)):
        if names:
            parts.append(f"{counted(len(names), 'file')} {word}")
    if files.unreadable:
        parts.append(f"{counted(len(files.unreadable), 'file')} cannot be read")
    return "; ".join(parts) or f"no difference in {counted(len(files.compared), 'file')}"


def diff_text(diff: GraphDiff, limit: int | None) -> str:
    """See `GraphDiff.to_text`."""
    files = diff.files
    if files is not None and files.of_directories:
        return "\n".join(_directories(diff, files, limit))
    lines = [] if files is None else [line for lines in files.counts.values() for line in lines]
    groups: dict[tuple[int, ...] | None, list[Finding]] = {}
    for finding in diff.findings:
        groups.setdefault(finding.ranks, []).append(finding)
    for ranks, findings in groups.items():
        shown = findings[:limit]
        texts = [finding.to_text(limit=4 if len(findings) <= 3 else 1) for finding in shown]
        if left := len(findings) - len(shown):
            texts.append(f"... and {left} more findings")
        if ranks is not None:
            lines.append(f"{format_ranks(ranks)}:")
            texts = [f"  {line}" for text in texts for line in text.splitlines()]
        lines += texts
    return "\n".join(lines) or "no difference"


def _directories(diff: GraphDiff, files: FilesDiff, limit: int | None) -> Iterator[str]:
    from .joining import finding_lines, some

    if releases := dict.fromkeys(files.releases.values()):
        yield f"torch {some([f'{old} -> {new}' for old, new in releases], limit)}"
    yield from finding_lines(diff.findings, limit=limit)
    by_counts: dict[tuple[str, ...], list[str]] = {}
    for file, lines in files.counts.items():
        by_counts.setdefault(lines, []).append(file)
    for lines, named in [*by_counts.items()][:limit]:
        yield f"~ op counts: {some(lines, limit)}"
        yield f"    in {some(named, limit)}"
    for sign, word, names in (
        ("+", "added", files.added),
        ("-", "removed", files.removed),
        ("=", "other names, strides or devices alone", files.renamed),
    ):
        if names:
            yield f"{sign} {word}: {some(names, limit)}"
    yield from (f"! {problem}" for problem in files.unreadable.values())


def heading(findings: Sequence[Finding]) -> str:
    """Return the edits and their places counted and named; see `GraphDiff.heading`."""
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
        more = f" and {same:,} more {'op' if same == 1 else 'ops'}" if same else ""
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
    head = "1 edit" if len(edits) == 1 else f"{len(edits)} edits"
    if count > len(edits):
        head += f" in {count:,} places"
    if len(edits) == 1:
        (edit,) = edits
        where = TOP if edit.summary else places_text(edit)
        return f"{head}: {edit_name(edit)}" + (f" in {where}" if where != TOP else "")
    names = list(dict.fromkeys(map(edit_name, edits)))
    named = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        named += f" and {len(names) - MAX_NAMED} more"
    where = common_path(place.module for edit in edits for place in edit.places)
    return f"{head}: {named}" + (f" in {where}" if where else "")


def _graphs(findings: Sequence[Finding]) -> str:
    """`2 graphs added, 1 changed`."""
    counts = Counter(finding.kind for finding in findings)
    parts = [f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind]]
    first, _, rest = parts[0].partition(" ")
    parts[0] = f"{first} {'graph' if first == '1' else 'graphs'} {rest}"
    return ", ".join(parts)
