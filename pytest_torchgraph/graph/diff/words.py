"""The text of a finding: its head, its nodes, its cost and its consequences."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...words import amount, counted, format_ranks, listed
from ..cost import Cost
from ..model import Arg, Atom, Device, Node, Ref, Result, SubgraphRef, TensorMeta, map_arg
from ..module_paths import common_path
from ..text import format_arg, format_name, format_node, format_op
from .findings import SIGNS, Change, FilesDiff, Finding, GraphDiff, Place, ops_of
from .paths import abridged, holds, instances_of, path_of

TOP = "(no module)"
"""Text for an edit outside every module."""
MODEL = "the model itself"
"""Text for an edit in the `forward` of the captured model."""


def finding_text(finding: Finding, limit: int) -> str:
    """Return a finding in a few lines; see `Finding.to_text`."""
    sign = sign_of(finding)
    if finding.summary and not finding.modules:
        return "\n".join([f"{sign} {finding.summary}", *_cost_lines(finding)])
    if finding.modules:
        lines = [f"{sign} {finding.summary} [{_list_graphs(finding.places)}]"]
        changes = (change for place in finding.places for change in place.changes)
        lines += _change_lines("with   ", outside_modules(changes, finding.modules), limit)
        return "\n".join([*lines, *_cost_lines(finding), *_consequence_lines(finding, limit)])
    before, after, rest = shown_nodes(finding)
    verb = "replaced" if is_replacement(finding) else finding.kind
    head = f"{sign} {verb} in {_format_places(finding)}"
    if finding.source is not None:
        head += f"  {finding.source}: {finding.source.code}".rstrip(": ")
    lines = [head]
    if before is not None:
        lines.append(f"    before  {format_node(before)}")
    if after is not None:
        lines.append(f"    after   {format_node(after)}")
    if renamed := finding.changes[0].renamed:
        names = ", ".join(f"%{format_name(x)} is now %{format_name(y)}" for x, y in renamed)
        lines.append(f"    names   {names}")
    lines += _change_lines("with   ", rest, limit)
    return "\n".join([*lines, *_cost_lines(finding), *_consequence_lines(finding, limit)])


def shown_nodes(finding: Finding) -> tuple[Node | None, Node | None, list[Change]]:
    """Return the nodes to show as before and after, and the other ops of an edit.

    If ops were replaced, `before` is the first removed op and `after` the first added op.
    """
    first, rest = finding.changes[0], ops_of(finding.changes[1:])
    other = _counterpart(first, rest)
    if other is None:
        return first.before, first.after, rest
    further = [change for change in rest if change is not other]
    return first.before or other.before, first.after or other.after, further


def is_replacement(finding: Finding) -> bool:
    """Return True if ops were replaced without a one-to-one match."""
    if finding.summary:
        return False
    return _counterpart(finding.changes[0], ops_of(finding.changes[1:])) is not None


def sign_of(finding: Finding) -> str:
    """Return the sign of a finding: `~` if ops were replaced, or the primary change's sign."""
    kinds = {change.kind for change in finding.changes}
    replaced = is_replacement(finding) or (finding.summary and len(kinds) > 1)
    return SIGNS["changed" if replaced else finding.kind]


def _counterpart(first: Change, rest: Iterable[Change]) -> Change | None:
    """Return the first removed op for an added primary op, and vice versa; `None` otherwise."""
    if not first.node.is_call:
        return None
    opposite = {"added": "removed", "removed": "added"}.get(first.kind)
    return next((change for change in rest if change.kind == opposite), None)


def cost_text(cost: Cost) -> str:
    """Return the known figures of a cost: `+0 FLOP, +1.2 MB saved`; "" if none is nonzero."""
    parts = []
    if cost.flops is not None:
        parts.append(amount(cost.flops, "FLOP", signed=True))
    if cost.saved_bytes is not None:
        parts.append(f"{amount(cost.saved_bytes, 'B', signed=True)} saved")
    return ", ".join(parts) if cost.flops or cost.saved_bytes else ""


def _cost_lines(finding: Finding) -> list[str]:
    text = cost_text(finding.cost)
    recomputed = recomputed_text(finding)
    return [
        *([f"    costs   {text}"] if text else []),
        *([f"    {recomputed}"] if recomputed else []),
    ]


def recomputed_text(finding: Finding) -> str:
    """Return the ops that the backward recomputes more or less often; "" if there are none."""
    ops = (f"{format_op(op)} {old:,} -> {new:,}" for op, old, new in finding.recomputed)
    text = listed(ops, MAX_RECOMPUTED)
    return f"recomputed in the backward: {text}" if text else ""


def count_changes(changes: Iterable[Change | Finding]) -> str:
    """Return the number of changes of each kind: `2 added, 1 changed`."""
    counts = Counter(change.kind for change in changes)
    return ", ".join(f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind])


def places_text(finding: Finding) -> str:
    """Return the abridged modules of the places, and the modules that feed a shared module."""
    paths = [place.module for place in finding.places]
    text = abridged(path or _top(finding) for path in paths)
    if len(paths) > 1 and len(set(paths)) == 1:
        feeding = dict.fromkeys(_feeding_modules(finding.places))
        return f"{text} × {len(paths)}" + (f", fed by {abridged(feeding)}" if feeding else "")
    return text


def _format_places(finding: Finding) -> str:
    """Return `fc [forward]`, or `12 places [forward]: layer.{0 … 11}.fc`."""
    graphs = f"[{_list_graphs(finding.places)}]"
    if len(finding.places) == 1:
        return f"{finding.module or _top(finding)} {graphs}"
    return f"{len(finding.places)} places {graphs}: {places_text(finding)}"


def _top(finding: Finding) -> str:
    return MODEL if finding.class_name and not finding.module else TOP


def _list_graphs(parts: Iterable[Place | Change]) -> str:
    return listed(dict.fromkeys(part.graph for part in parts), 3)


def _feeding_modules(places: Iterable[Place]) -> Iterable[str]:
    """Yield the modules of the outside operands of the primary nodes."""
    for place in places:
        edit_names = {change.node.name for change in place.changes}
        for name in place.changes[0].node.refs:
            path, slash, _ = name.rpartition("/")
            if slash and name not in edit_names and not holds(place.module, path):
                yield path


def outside_modules(changes: Iterable[Change], modules: Iterable[str]) -> list[Change]:
    """Return the op changes outside these modules, whose paths must end with a number."""
    inside = frozenset(modules)
    return [
        change
        for change in ops_of(changes)
        if inside.isdisjoint(instances_of(path_of(change.node)))
    ]


def _consequence_lines(finding: Finding, limit: int) -> list[str]:
    """Return the lines of the consequences. All places are counted, and the first is listed."""
    all_consequences = [place.consequences for place in finding.places if place.consequences]
    outside_by_place = [outside_modules(changes, finding.modules) for changes in all_consequences]
    listed = [changes for changes in outside_by_place if changes]
    saved_lines = _saved_lines(finding)
    if listed:
        all_listed = [change for changes in listed for change in changes]
        names = _list_graphs(all_listed)
        head = f"    follows in {names}: {count_changes(all_listed)}"
        if (
            len(finding.places) == len(listed) > 1
            and len({len(changes) for changes in listed}) == 1
        ):
            head += f" ({len(listed[0])} in each place)"
        return [*saved_lines, head, *_change_lines("       ", listed[0], limit)]
    if all_consequences and not finding.modules and not saved_lines:
        consequences = [change for changes in all_consequences for change in changes]
        returns = [change for change in consequences if _is_return(change)]
        names = _list_graphs(returns or consequences)
        return [f"    follows in {names}: the {'returned' if returns else 'saved'} values differ"]
    return saved_lines


def _is_return(change: Change) -> bool:
    """Return True if a graph returns a different value. Its saved values may differ as well."""
    before, after = change.before, change.after
    if change.node.kind != "output" or before is None or after is None:
        return False
    return format_node(before) != format_node(after)


def _saved_lines(finding: Finding) -> list[str]:
    """Return the line of added and removed saved activations, over all places; [] if none."""
    values = dict.fromkeys(
        (change.kind, change.graph, change.node.name)
        for place in finding.places
        for change in place.consequences
        if change.node.op == "saved"
    )
    more = [name for kind, _, name in values if kind == "added"]
    fewer = [name for kind, _, name in values if kind == "removed"]
    if not more and not fewer:
        return []
    new_names = _list_names(more, SIGNS["added"])
    old_names = _list_names(fewer, SIGNS["removed"])
    if more and fewer:
        return [
            f"    saves {counted(len(more), 'other value')} for the backward ({new_names}) "
            f"in place of {len(fewer):,} ({old_names})"
        ]
    return [
        f"    saves {counted(len(more or fewer), 'more value' if more else 'fewer value')} "
        f"for the backward: {new_names or old_names}"
    ]


def _list_names(names: Sequence[str], sign: str) -> str:
    return listed((f"{sign} %{format_name(name)}" for name in names), 2)


def _change_lines(word: str, changes: Sequence[Change], limit: int) -> list[str]:
    lines = [f"    {word} {change}" for change in changes[:limit]]
    if len(changes) > limit:
        unlisted = changes[limit:]
        lines.append(f"    {word} ... and {len(unlisted)} more ({count_changes(unlisted)})")
    return lines


MAX_RECOMPUTED = 4
"""Maximum number of recomputed ops to name. Further ops are only counted."""


DEFAULT = Atom("default")
"""Value of an argument that is not passed, if the op's schema is unknown."""


MAX_NAMED = 3
"""Maximum number of edits to name in a heading. Further edits are only counted."""


MAX_NAMED_OPS = 2
"""Maximum number of removed, and of added, ops to name in a replacement.

If there are more, they are only counted."""


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
        return "\n".join(_directory_lines(diff, files, limit))
    lines = [] if files is None else [line for lines in files.counts.values() for line in lines]
    groups: dict[tuple[int, ...] | None, list[Finding]] = {}
    for finding in diff.findings:
        groups.setdefault(finding.ranks, []).append(finding)
    for ranks, findings in groups.items():
        shown = findings[:limit]
        texts = [finding.to_text(limit=4 if len(findings) <= 3 else 1) for finding in shown]
        if unlisted := len(findings) - len(shown):
            texts.append(f"... and {unlisted} more findings")
        if ranks is not None:
            lines.append(f"{format_ranks(ranks)}:")
            texts = [f"  {line}" for text in texts for line in text.splitlines()]
        lines += texts
    return "\n".join(lines) or "no difference"


def _directory_lines(diff: GraphDiff, files: FilesDiff, limit: int | None) -> Iterator[str]:
    from .joining import finding_lines, list_some

    if releases := dict.fromkeys(files.releases.values()):
        yield f"torch {list_some([f'{old} -> {new}' for old, new in releases], limit)}"
    yield from finding_lines(diff.findings, limit=limit)
    by_counts: dict[tuple[str, ...], list[str]] = {}
    for file, lines in files.counts.items():
        by_counts.setdefault(lines, []).append(file)
    for lines, named in [*by_counts.items()][:limit]:
        yield f"~ op counts: {list_some(lines, limit)}"
        yield f"    in {list_some(named, limit)}"
    for sign, word, names in (
        ("+", "added", files.added),
        ("-", "removed", files.removed),
        ("=", "only names, strides or devices differ", files.renamed),
    ):
        if names:
            yield f"{sign} {word}: {list_some(names, limit)}"
    yield from (f"! {problem}" for problem in files.unreadable.values())


def heading(findings: Sequence[Finding]) -> str:
    """Return one line that counts and names the edits and their places; see `GraphDiff.heading`."""
    if not findings:
        return "no difference"
    modules = [finding for finding in findings if finding.modules]
    graphs = [finding for finding in findings if finding.of_graph]
    edits = [finding for finding in findings if not finding.modules and not finding.of_graph]
    parts = [finding.summary for finding in modules]
    if edits:
        parts.append(_count_edits(edits))
    if graphs:
        parts.append(_graph_counts(graphs))
    return "; ".join(parts)


def edit_name(finding: Finding) -> str:
    """Return an edit without its place: `aten.gelu -> aten.relu`, `aten.clone added`."""
    if finding.summary:
        return finding.summary
    change, rest = finding.changes[0], ops_of(finding.changes[1:])
    before, after = change.before, change.after
    added, removed = (
        [other.node for other in (change, *rest) if other.kind == kind]
        for kind in ("added", "removed")
    )
    if before is not None and after is not None and before.op != after.op:
        first = f"{node_name(before)} -> {node_name(after)}"
        others = rest
    elif added and removed:
        first = f"{_list_ops(removed)} -> {_list_ops(added)}"
        others = [other for other in rest if other.kind not in ("added", "removed")]
    else:
        same = [other for other in (change, *rest) if other.kind == change.kind]
        values = _changed_values(same)
        nodes = [other.node for other in same]
        if values:
            first = f"{values} of {_list_ops(nodes)}"
        else:
            name, count = node_name(change.node), len(nodes)
            if {*map(node_name, nodes)} == {name}:
                name = f"{count:,} {name}" if count > 1 else name
            else:
                name += f" and {counted(count - 1, 'more op')}"
            first = f"{name} {change.kind}"
        others = [other for other in rest if other.kind != change.kind]
    return f"{first} (and {count_changes(others)})" if others else first


def _changed_values(changes: Sequence[Change]) -> str:
    """Name the values that differ between nodes of the same op; "" if there are none.

    These are the arguments of the primary op, `argument is_causal: True -> False`. If they differ
    only by sizes of results, the sizes: `size 32 -> 48`. Otherwise, the dtype.
    """
    pairs = [
        (change.before, change.after)
        for change in changes
        if change.before is not None and change.after is not None
    ]
    results = [pair for x, y in pairs for pair in _pair_tensors(x.result, y.result)]
    sizes = [*dict.fromkeys(pair for x, y in results for pair in _unequal(x.shape, y.shape))]
    arguments = [
        f"argument {name}: {_format_value(x)} -> {_format_value(y)}"
        for name, x, y in (_changed_arguments(*pairs[0]) if pairs else ())
        if not all(pair in sizes for pair in _unequal(x, y) or [(x, y)])
    ]
    if arguments:
        return listed(arguments, MAX_NAMED)
    if sizes:
        text = listed((f"{format_arg(x)} -> {format_arg(y)}" for x, y in sizes), MAX_NAMED)
        return f"size{'s' * (len(sizes) > 1)} {text}"
    dtypes = dict.fromkeys(f"{x.dtype} -> {y.dtype}" for x, y in results if x.dtype != y.dtype)
    return f"dtype {listed(dtypes, MAX_NAMED)}" if dtypes else ""


def _pair_tensors(old: Result, new: Result) -> Iterator[tuple[TensorMeta, TensorMeta]]:
    """Yield the corresponding tensors of two results."""
    if isinstance(old, TensorMeta) and isinstance(new, TensorMeta):
        yield old, new
    elif isinstance(old, tuple) and isinstance(new, tuple):
        for x, y in zip(old, new, strict=False):
            yield from _pair_tensors(x, y)


def _unequal(old: Arg, new: Arg) -> list[tuple[Arg, Arg]]:
    """Return the values that differ between two sequences of the same length; [] for others."""
    if not (isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new)):
        return []
    return [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]


def _changed_arguments(before: Node, after: Node) -> Iterator[tuple[str, Arg, Arg]]:
    """Yield the name of each argument that differs by more than its tensors, and both values."""
    defaults: Mapping[str, Arg] = {}
    if "torch" in sys.modules:
        from ...ops.registry import argument_defaults

        defaults = argument_defaults(before.op)
    if not before.is_call:
        return
    names = [*defaults]
    old, new = (
        {names[i] if i < len(names) else str(i): value for i, value in enumerate(node.args)}
        | dict(node.kwargs)
        | ({"options": node.options} if node.options is not None else {})
        for node in (before, after)
    )
    for name in dict.fromkeys((*old, *new)):
        x, y = (side.get(name, defaults.get(name, DEFAULT)) for side in (old, new))
        if format_arg(map_arg(x, _hide_node)) != format_arg(map_arg(y, _hide_node)):
            yield name, x, y


def _hide_node(value: Arg) -> Arg:
    return DEFAULT if isinstance(value, Ref | SubgraphRef | Device) else value


def _format_value(value: Arg) -> str:
    return value or "default" if isinstance(value, str) else format_arg(value)


def _list_ops(nodes: Sequence[Node]) -> str:
    names = Counter(map(node_name, nodes))
    if len(names) > MAX_NAMED_OPS:
        return f"{len(nodes):,} ops"
    return " and ".join(name if n == 1 else f"{n:,} {name}" for name, n in names.items())


def node_name(node: Node) -> str:
    """Return the name of a node in headings: its op without `.default`, or its role."""
    if node.is_call:
        return format_op(node.op).removesuffix(".default")
    if node.kind == "output":
        return "the return"
    return f"{node.op} %{format_name(node.name)}"


def _count_edits(edits: Sequence[Finding]) -> str:
    count = sum(len(edit.places) for edit in edits)
    head = "1 edit" if len(edits) == 1 else f"{len(edits)} edits"
    if count > len(edits):
        head += f" in {count:,} places"
    if len(edits) == 1:
        (edit,) = edits
        location = TOP if edit.summary else places_text(edit)
        text = f"{head}: {edit_name(edit)}" + (f" in {location}" if location != TOP else "")
        return text + _origin_text(edits)
    names = list(dict.fromkeys(map(edit_name, edits)))
    named = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        named += f" and {len(names) - MAX_NAMED} more"
    location = common_path(place.module for edit in edits for place in edit.places)
    return f"{head}: {named}" + (f" in {location}" if location else "") + _origin_text(edits)


def _origin_text(edits: Iterable[Finding]) -> str:
    """Return the class and the lines of edits: ` (MLP, model.py:29)`; "" if unknown."""
    simple = [edit for edit in edits if edit.places and not edit.summary]
    classes = {edit.class_name for edit in simple}
    parts = dict.fromkeys(str(edit.source) for edit in simple if edit.source is not None)
    text = listed(filter(None, (*(classes if len(classes) == 1 else ()), *parts)), MAX_NAMED)
    return f" ({text})" if text else ""


def _graph_counts(findings: Sequence[Finding]) -> str:
    """Return counts such as `2 graphs added, 1 changed`."""
    first, _, rest = count_changes(findings).partition(" ")
    return f"{first} {'graph' if first == '1' else 'graphs'} {rest}"
