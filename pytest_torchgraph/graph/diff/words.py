"""The text of a finding: its head, its nodes, its cost and its consequences."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from ...ops.dtypes import CASTS, DTYPE_NAMES
from ...words import amount, counted, format_ranks, grouped, listed
from ..census import describe_python_calls
from ..cost import Cost
from ..model import Arg, Atom, Node, TensorMeta
from ..module_paths import common_path
from ..text import format_arg, format_name, format_node, format_op, format_result
from .findings import MODEL, SIDES, SIGNS, Change, FilesDiff, Finding, GraphDiff, Place, ops_of
from .paths import abridged, holds, instances_of, path_of
from .rules import CONNECTED, VERBS, Reason

TOP = "(no module)"
"""Text for an edit outside every module."""


def finding_text(finding: Finding, limit: int) -> str:
    """Return a finding in a few lines; see `Finding.to_text`.

    The kinds of findings are, in this order: a recompile, a graph break, another finding with a
    summary, added or removed modules, and an edit of nodes.
    """
    sign = sign_of(finding)
    if finding.recompile is not None:
        return "\n".join([f"{sign} {finding.summary}", *str(finding.recompile).splitlines()[1:]])
    if finding.graph_break is not None:
        cut = finding.graph_break
        paths = [place.module for place in finding.places]
        lines = [f"{sign} {finding.summary}", f"    in {abridged(path or MODEL for path in paths)}"]
        lines += [f"    {line}" for text in (cut.reason, cut.hint) for line in text.splitlines()]
        return "\n".join([*lines, *cost_lines(finding), *_consequence_lines(finding, limit)])
    if finding.summary and not finding.modules:
        lines = [f"{sign} {finding.summary}", *cost_lines(finding)]
        return "\n".join([*lines, *_consequence_lines(finding, limit)])
    if finding.modules:
        lines = [f"{sign} {finding.summary} [{_list_graphs(finding.places)}]"]
        changes = (change for place in finding.places for change in place.changes)
        rest = outside_modules(changes, finding.modules)
    else:
        before, after, rest = shown_nodes(finding.changes)
        verb = "replaced" if is_replacement(finding) else finding.kind
        head = f"{sign} {verb} in {_format_places(finding)}"
        if finding.source is not None:
            head += f"  {finding.source}: {finding.source.code}".rstrip(": ")  # the code may be ""
        lines = [head]
        if before is not None:
            lines.append(f"    before  {format_node(before)}")
        if after is not None:
            lines.append(f"    after   {format_node(after)}")
        if renamed := dict.fromkeys(pair for c in finding.changes for pair in c.renamed):
            shown = [f"%{format_name(x)} is now %{format_name(y)}" for x, y in [*renamed][:limit]]
            more = f" and {len(renamed) - limit:,} more" * (len(renamed) > limit)
            lines.append(f"    names   {', '.join(shown)}{more}")
    orders = finding.details
    lines += [f"    order   {line}" for line in orders[:limit]]
    lines += [f"    order   ... and {len(orders) - limit} more"] * (len(orders) > limit)
    lines += _change_lines("with   ", rest, limit)
    return "\n".join([*lines, *cost_lines(finding), *_consequence_lines(finding, limit)])


def shown_nodes(changes: Sequence[Change]) -> tuple[Node | None, Node | None, list[Change]]:
    """Return the nodes to show as before and after, and the other ops of an edit in one place.

    If ops were replaced, `before` is the first removed op and `after` the first added op.
    """
    if not changes:
        return None, None, []
    first, rest = changes[0], ops_of(changes[1:])
    inputs = [c for c in changes[1:] if c.node.kind == "placeholder" and c.kind == "changed"]
    other = _counterpart(first, rest)
    if other is None:
        return first.before, first.after, rest + inputs
    further = [change for change in rest if change is not other]
    return first.before or other.before, first.after or other.after, further + inputs


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


def cost_lines(finding: Finding, note: str = "") -> list[str]:
    """Return the lines of the cost of a finding, with a note, and of what is recomputed."""
    costs, recomputed = cost_text(finding.cost), recomputed_text(finding)
    lines = [f"    costs   {costs}{note}"] if costs else []
    return [*lines, *([f"    {recomputed}"] if recomputed else [])]


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
    """Return the text for an edit outside every module, or in a model whose class is known."""
    return MODEL if finding.class_name and not finding.module else TOP


def _list_graphs(parts: Iterable[Place | Change]) -> str:
    """Return the names of the graphs of places or changes, each once."""
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
    shown_by_place = [changes for changes in outside_by_place if changes]
    saved_lines = [f"    {line}" for line in finding.gradients if line not in finding.summary]
    saved_lines += _saved_lines(finding)
    # A gradient can be another one by its projection or its return alone, which are no ops. Changed
    # inputs are listed only if the text is complete.
    others = [
        change
        for changes in all_consequences
        for change in changes
        if change.kind == "changed"
        and not ops_of((change,))
        and (change.node.kind != "placeholder" or limit == sys.maxsize)
    ]
    other_lines = _change_lines("       ", others, limit)
    if shown_by_place:
        all_shown = [change for changes in shown_by_place for change in changes]
        names = _list_graphs(all_shown)
        head = f"    follows in {names}: {count_changes(all_shown)}"
        if len(shown_by_place) > 1:
            # Only the consequences of one place are listed below. If all have as many: "each".
            sizes = [len(changes) for changes in shown_by_place]
            each = "each" if len(finding.places) == sizes.count(sizes[0]) else "one"
            head += f" ({sizes[0]} in {each} place)"
        lines = _change_lines("       ", shown_by_place[0], limit)
        return [*saved_lines, head, *lines, *other_lines]
    # No op follows, only inputs and outputs: these are saved or returned values.
    if all_consequences and not finding.modules and not saved_lines:
        consequences = [change for changes in all_consequences for change in changes]
        returns = [change for change in consequences if _is_return(change)]
        names = _list_graphs(returns or consequences)
        head = f"    follows in {names}: the {'returned' if returns else 'saved'} values differ"
        return [head, *other_lines]
    return [*saved_lines, *other_lines]


def why_lines(finding: Finding, limit: int = 4) -> Iterator[str]:
    """Yield lines for each of the reasons of a finding, with the two nodes of its uses.

    Uses that connect modules come first, because within a module the names show the connection.

    Args:
        finding: the finding.
        limit: maximum number of uses of each rule, all in the first place that has any.
    """
    uses = [grouped((use.rule, use) for use in place.reasons) for place in finding.places]
    for rule in finding.reasons:
        found = [of_place[rule] for of_place in uses if rule in of_place]
        if not found:  # the finding was read from JSON, without nodes
            yield f"    why     {rule}"
            continue
        shown = sorted(found[0], key=lambda use: _home(use.node) == _home(use.other))[:limit]
        first, *others = map(_use_text, shown)
        yield f"    why     {rule}: {first}"
        yield from (f"            {text}" for text in others)
        if more := len(found[0]) - len(shown):
            yield f"            ... and {more:,} more"
        elif more := sum(map(len, found[1:])):
            yield f"            ... and {more:,} more in other places"


def _home(name: str) -> str:
    """Return the module in the name of a node."""
    return name.rpartition("/")[0]


def _use_text(use: Reason) -> str:
    """Return one use of a rule: `+ %exp reads + %sin`."""
    node, other = (
        f"{sign} %{format_name(name)}".lstrip() + f" [{graph}]" * (graph != "")
        for name, sign, graph in zip(
            (use.node, use.other), use.signs, use.graphs or ("", ""), strict=True
        )
    )
    if not use.other:  # a graph break has no node
        return node
    # The verb of the rule describes two different nodes. Some pairs have a more exact one.
    verb, shared = VERBS[use.rule], use.shared
    if use.node == use.other:
        verb = "is the saved value"
    elif use.node == shared:
        verb, shared = "is an operand of", ""
    elif use.node.startswith(f"{use.other}#"):  # the name of a projection
        verb = "is a result of"
    elif use.rule == CONNECTED and not use.graphs:
        verb = "reads"
    if "-" in use.signs and verb == "reads":
        verb = "read"  # a removed node reads nothing any more
    return f"{node} {verb} {other}" + (f", see %{format_name(shared)}" if shared else "")


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
        for change in (*place.changes, *place.consequences)
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
    """Return a line for each change, which begins with `word`, and one that counts the rest."""
    lines = [f"    {word} {change}" for change in changes[:limit]]
    if len(changes) > limit:
        unlisted = changes[limit:]
        lines.append(f"    {word} ... and {len(unlisted)} more ({count_changes(unlisted)})")
    return lines


MAX_RECOMPUTED = 4
"""Maximum number of recomputed ops to name. Further ops are only counted."""


DEFAULT = Atom("default")
"""Value of an argument that is not passed, if the op's schema is unknown."""


_WORD = re.compile(r"[^\s\[\](),]+")


MAX_NAMED = 3
"""Maximum number of edits to name in a heading. Further edits are only counted."""


MAX_ORIGINS = 6
"""Maximum number of classes and lines at the end of a heading."""


MAX_NAMED_OPS = 2
"""Maximum number of removed, and of added, ops to name in a replacement.

If there are more, they are only counted."""


def diff_heading(diff: GraphDiff) -> str:
    """See `GraphDiff.heading`."""
    files = diff.files
    # Graphs, or two files of graphs; then two files of op counts; then directories.
    if files is None or not (files.of_directories or files.counts):
        after = () if diff.origins is None else (new for _, new in diff.origins.pairs if new)
        calls = describe_python_calls(after)
        releases = dict.fromkeys(files.releases.values()) if files else ()
        parts = [f"torch {old} -> {new}" for old, new in releases]
        parts.append(heading(diff.findings))
        return "; ".join([*parts, *([f"not compared: {calls}"] if calls else [])])
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


def diff_text(diff: GraphDiff, limit: int | None, why: bool) -> str:
    """See `GraphDiff.to_text`."""
    files = diff.files
    if files is not None and files.of_directories:
        return "\n".join(_directory_lines(diff, files, limit, why))
    lines = [] if files is None else [line for lines in files.counts.values() for line in lines]
    groups = grouped((finding.ranks, finding) for finding in diff.findings)
    for ranks, findings in groups.items():
        shown = findings[:limit]
        # A few findings have room for more lines of each.
        texts = [finding.to_text(4 if len(findings) <= 3 else 1, why=why) for finding in shown]
        if unlisted := len(findings) - len(shown):
            texts.append(f"... and {unlisted} more findings")
        if ranks is not None:
            lines.append(f"{format_ranks(ranks)}:")
            texts = [f"  {line}" for text in texts for line in text.splitlines()]
        lines += texts
    return "\n".join(lines) or diff_heading(diff)


def _directory_lines(
    diff: GraphDiff, files: FilesDiff, limit: int | None, why: bool
) -> Iterator[str]:
    """Yield the lines of the difference of two directories; see `GraphDiff.to_text`."""
    from .joining import finding_lines, list_some

    if releases := dict.fromkeys(files.releases.values()):
        yield f"torch {list_some([f'{old} -> {new}' for old, new in releases], limit)}"
    yield from finding_lines(diff.findings, limit=limit, why=why)
    by_counts = grouped((lines, file) for file, lines in files.counts.items())
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
    graphs = [graph for change in finding.changes for graph in change.within[:1]]
    # Ops of a backward alone are no edit of the user's. The gradient is.
    in_backward = bool(graphs) and all(graph.kind == "backward" for graph in graphs)
    if finding.gradients and in_backward:
        return "; ".join(finding.gradients)
    change, rest = finding.changes[0], ops_of(finding.changes[1:])
    before, after = change.before, change.after
    added, removed = (
        [other.node for other in (change, *rest) if other.kind == kind]
        for kind in ("added", "removed")
    )
    # The primary node became another op; ops were replaced without a match; or several nodes have
    # the kind of change of the primary node.
    notes: list[str] = []
    if before is not None and after is not None and before.op != after.op:
        first = f"{_list_ops([before])} -> {_list_ops([after])}"
        others, notes = rest, _parameter_notes(finding)
    elif added and removed:
        first = f"{_list_ops(removed)} -> {_list_ops(added)}"
        others = [other for other in rest if other.kind not in ("added", "removed")]
        notes = _parameter_notes(finding)
    else:
        same = [other for other in (change, *rest) if other.kind == change.kind]
        values, shown = _changed_values(same)
        nodes = [other.node for other in shown]
        names = _list_ops(nodes, with_dtype=not values)
        if not values and len({*map(node_name, nodes)}) > 1:
            names = f"{node_name(change.node)} and {counted(len(nodes) - 1, 'more op')}"
        first = f"{values} of {names}" if values else f"{names} {change.kind}"
        if change.kind == "rewired" and _take_the_same(same):
            first = f"operands of {names} exchanged"
        named = {*map(id, shown)}
        others = [other for other in rest if id(other) not in named]
        if added + removed == [change.node]:
            notes = _operand_notes(finding)
    first += " in the backward" * in_backward
    if others:
        notes.insert(0, f"and {count_changes(others)}")
    notes += finding.gradients  # which may matter more than the op
    return f"{first} ({', '.join(notes)})" if notes else first


def _take_the_same(changes: Iterable[Change]) -> bool:
    """Return True if nodes together take the same values as before, in another order."""
    taken: tuple[list[str], list[str]] = [], []
    for change in changes:
        if change.before is None or change.after is None:
            return False
        names = dict(change.renamed)
        taken[0].extend(names.get(name, name) for name in change.before.refs)
        taken[1].extend(change.after.refs)
    return taken[0] != taken[1] and sorted(taken[0]) == sorted(taken[1])


def _parameter_notes(finding: Finding) -> list[str]:
    """Return the parameters that only one side has, in words, of ops that others replace.

    A layer without its bias is `aten.addmm -> aten.mm`.
    """
    notes = []
    for side, kind in enumerate(SIDES):
        names: dict[str, None] = {}
        for change in (change for place in finding.places for change in place.changes):
            node = (change.before, change.after)[side]
            if node is not None and node.is_call and change.within:
                own, other = change.within[side], change.within[not side]
                names |= dict.fromkeys(
                    name
                    for name in node.refs
                    if own.by_name[name].op == "parameter" and name not in other.by_name
                )
        if names:
            notes.append(f"{abridged(names)} {kind}")
    return notes if len(notes) < 2 else []  # a module with another name has all of them twice


def _operand_notes(finding: Finding) -> list[str]:
    """Return from which inner modules an added or removed op takes values, if another is equal.

    A layer has two residual sums. One follows `attn`, the other one `mlp`.
    """
    inner: set[tuple[str, ...]] = set()
    for place in finding.places:
        change = place.changes[0]
        node, start = change.node, f"{place.module}." if place.module else ""
        if not node.is_call or not change.within:
            return []
        graph = change.within[change.kind == "added"]
        same = [x for x in graph.nodes if (x.op, x.module) == (node.op, node.module)]
        paths = [graph.by_name[name].module for name in node.refs]
        names = (path[len(start) :].partition(".")[0] for path in paths if path.startswith(start))
        inner.add(tuple(dict.fromkeys(filter(None, names))) if len(same) > 1 else ())
    # In another place it may follow others.
    [modules, *others] = inner
    return [f"after {listed(modules, MAX_NAMED)}"] if modules and not others else []


def _changed_values(changes: Sequence[Change]) -> tuple[str, Sequence[Change]]:
    """Name the values that differ between nodes of the same op, and return the changes of these.

    The values are the arguments of the primary op, `argument is_causal: True -> False`. If these
    differ only by sizes of results, the sizes: `size 32 -> 48`, or the dtypes. If nothing differs
    in words, "" and all changes.

    Args:
        changes: changes of one kind, the primary one first.
    """
    results = [
        changed_words(format_result(c.before.result), format_result(c.after.result))
        if c.before and c.after
        else []
        for c in changes
    ]
    sizes = dict.fromkeys(pair for pairs in results for pair in pairs)
    arguments = [
        f"{name}: {x} -> {y}"
        for name, x, y in _pair_arguments(changes[0])
        if any(pair not in sizes for pair in changed_words(x, y))
    ]
    if arguments:
        return f"argument {listed(arguments, MAX_NAMED)}", changes[:1]
    # The first word that differs in the primary result tells dtypes from sizes.
    if results[0]:
        noun = "dtype" if results[0][0][0] in DTYPE_NAMES else "size"
        shown = [c for c, pairs in zip(changes, results, strict=True) if pairs]
        return f"{noun} {listed(map(' -> '.join, sizes), MAX_NAMED)}", shown
    return "", changes


def changed_words(old: str, new: str) -> list[tuple[str, str]]:
    """Return the constants, sizes and dtypes that differ in two printed values."""
    words, new_words = _WORD.findall(old), _WORD.findall(new)
    if len(words) != len(new_words):
        return [(old, new)]
    # Names of nodes and bodies are no values.
    pairs = zip(words, new_words, strict=True)
    return [(x, y) for x, y in pairs if x != y and not {x[0], y[0]} <= {"%", "@"}]


def _pair_arguments(change: Change) -> Iterator[tuple[str, str, str]]:
    """Yield the name and both printed values of each argument of a changed op."""
    before, after = change.before, change.after
    if before is None or after is None or not before.is_call:
        return
    # The schema of an op has the names of positional arguments. Without torch, they are numbers.
    defaults: Mapping[str, Arg] = {}
    if "torch" in sys.modules:
        from ...ops.registry import argument_defaults

        defaults = argument_defaults(before.op)
    old, new = (
        {
            **defaults,
            **dict(zip(defaults or map(str, count()), node.args, strict=False)),
            **node.kwargs,
        }
        for node in (before, after)
    )
    for name in {**old, **new}:
        yield name, format_arg(old.get(name, DEFAULT)), format_arg(new.get(name, DEFAULT))


def _list_ops(nodes: Sequence[Node], *, with_dtype: bool = True) -> str:
    """Return the ops of nodes, such as `aten.mul and 2 aten.add`; of many ops, the number.

    Args:
        nodes: the nodes.
        with_dtype: True to say to which dtype an op casts.
    """
    texts = (node_name(node) + (_cast_text(node) if with_dtype else "") for node in nodes)
    names = Counter(texts)
    if len(names) > MAX_NAMED_OPS:
        return counted(len(nodes), "op")
    return " and ".join(name if n == 1 else f"{n:,} {name}" for name, n in names.items())


def _cast_text(node: Node) -> str:
    """Return ` to bf16` of an op that casts; "" of any other."""
    if node.op.startswith(CASTS) and isinstance(node.result, TensorMeta):
        return f" to {node.result.dtype}"
    return ""


def node_name(node: Node) -> str:
    """Return the name of a node in headings: its op without `.default`, or its role."""
    if node.is_call:
        return format_op(node.op).removesuffix(".default")
    if node.kind == "output":
        return "the return"
    return f"{node.op} %{format_name(node.name)}"


def _count_edits(edits: Sequence[Finding]) -> str:
    """Return the number of edits and places, their names, and their common module and origin."""
    count = sum(len(edit.places) for edit in edits)
    head = counted(len(edits), "edit")
    if count > len(edits):
        head += f" in {count:,} places"
    head += f": {listed(dict.fromkeys(map(_name_in_heading, edits)), MAX_NAMED)}"
    location = common_path(place.module for edit in edits for place in edit.places)
    if len(edits) == 1:
        location = "" if edits[0].summary else places_text(edits[0])
    return head + (f" in {location}" if location not in ("", TOP) else "") + _origin_text(edits)


def _name_in_heading(edit: Finding) -> str:
    """Return the name of an edit. That of a graph break has its modules after the function."""
    name, cut = edit_name(edit), edit.graph_break
    if cut is None or not any(place.module for place in edit.places):
        return name
    function = f" in {cut.function}"
    return name.replace(function, f"{function} of {places_text(edit)}", 1)


def _origin_text(edits: Iterable[Finding]) -> str:
    """Return the class and the line of each edit: ` (MLP, model.py:29)`; "" if unknown."""
    parts = dict.fromkeys(
        part
        for edit in edits
        if not edit.summary
        for part in (edit.class_name, str(edit.source or ""))
    )
    text = listed(filter(None, parts), MAX_ORIGINS)
    return f" ({text})" if text else ""


def _graph_counts(findings: Sequence[Finding]) -> str:
    """Return counts such as `2 graphs added, 1 changed`."""
    first, _, rest = count_changes(findings).partition(" ")
    return f"{first} {'graph' if first == '1' else 'graphs'} {rest}"
