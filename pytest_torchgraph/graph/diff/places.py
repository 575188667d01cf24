"""Merge the findings of the same edit into one finding with a place for each.

- `merge_equal_edits`: first separates added and removed modules (`separate_modules`), then merges
  findings with equal keys (see `keys`), in several layers or in several calls.
- `merge_same_lines`: merges findings on one line of the user's code, or of one setting.
- `merge_torch_modules`: merges findings in the same torch modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ...words import grouped
from ..equality import NumberedGraph
from ..model import Graph, Node
from .findings import Change, Finding, Place, digest, ops_of
from .forms import added_results
from .identify import MAX_EDITS, ops_of_edit, setting_of, where_token
from .instances import contents_of
from .keys import EditKeys
from .origins import Origins
from .paths import abridged, holds, instances_of, natural_key, path_of
from .rules import MODULE, TORCH_MODULE

Kind = Literal["added", "removed"]
MIN_EDITED_SHARE = 0.5
"""Minimum share of new ops in a module for the module to count as added.

Also the minimum share of changes inside added modules for a finding to count as added modules. The
same applies to removed modules."""
MIN_EDITED_OPS = 2
"""Minimum number of added (or removed) ops in an added (or removed) module, without consequences.

A single op is more informative than its module."""
MAX_DIFFERENCE = 0.2
"""Maximum share of differing lines between two modules that are nearly alike."""
MAX_CANDIDATES = 8
"""Number of candidates, the last of the module list, to compare with a new module."""
MAX_LISTED = 2
"""Maximum number of similar modules to name in a summary."""

Numbered = tuple[int, Finding]
"""A finding and its number in the order of the graphs."""


@dataclass
class _ModuleEdit:
    """An added or removed module, with its changes.

    Attributes:
        kind: "added" or "removed".
        path: path of the module.
        changes: changes inside the module.
        outside: changes of the same findings outside all added and removed modules.
        consequences: consequences of these changes.
    """

    kind: Kind
    path: str
    changes: list[Change] = field(default_factory=list)
    outside: list[Change] = field(default_factory=list)
    consequences: list[Change] = field(default_factory=list)


_Modules = Mapping[tuple[str, str], _ModuleEdit]
"""Added and removed modules, by kind and path."""


def separate_modules(
    findings: Sequence[Numbered], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> tuple[list[Numbered], list[Numbered]]:
    """Separate added and removed modules from the other findings.

    Args:
        findings: one finding for each place.
        before, after: all graphs of the two captures.
        origins: the origins of the changes.

    Returns:
        At most one finding of added modules and one of removed modules, and the other findings.
    """
    # Without such findings, the heading for a BERT grown from 12 to 24 layers, by 1,416 ops, would
    # be '1 op added'.
    modules = _find_edited_modules(findings, before, after, origins)
    if not modules:
        return [], list(findings)
    others: list[Numbered] = []
    first: dict[Kind, int] = {}  # number of the first finding of each kind
    for number, finding in findings:
        inside = [
            module for change in finding.changes if (module := _edited_module_of(change, modules))
        ]
        if finding.of_graph or len(inside) < MIN_EDITED_SHARE * len(finding.changes):
            others.append((number, finding))
            continue
        for module in inside:
            first.setdefault(module.kind, number)
        _distribute_changes(finding, modules, inside)
    module_findings: list[Numbered] = []
    for kind in ("added", "removed"):
        if kind in first:
            edited = [
                m for m in modules.values() if m.kind == kind and (m.changes or m.consequences)
            ]
            flats = _graphs_with_changes(findings, origins, is_new=kind == "added")
            module_findings.append((first[kind], _modules_finding(edited, flats, origins)))
    return module_findings, others


# -- which modules ---------------------------------------------------------------------------------


def _find_edited_modules(
    findings: Sequence[Numbered], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> _Modules:
    """Return the outermost instances that only one side has, with mostly added or removed ops."""
    edits = _count_ops_by_kind(place.changes for _, finding in findings for place in finding.places)
    if all(count < MIN_EDITED_OPS for counts in edits.values() for count in counts.values()):
        return {}
    consequences = _count_ops_by_kind(
        place.consequences for _, finding in findings for place in finding.places
    )
    sizes = {"added": _count_ops_by_module(after), "removed": _count_ops_by_module(before)}
    other_sizes = {"added": sizes["removed"], "removed": sizes["added"]}
    modules: dict[tuple[str, str], _ModuleEdit] = {}
    kinds: tuple[Kind, ...] = ("added", "removed")
    for kind in kinds:
        # Outermost first: a layer is one added module, and its submodules are not added modules.
        for path in sorted(edits[kind], key=lambda path: path.count(".")):
            one_sided = origins.instances.one_sided[kind]
            is_one_sided = path not in other_sizes[kind] or path in one_sided
            count = edits[kind][path] + consequences[kind][path]
            enough = (
                edits[kind][path] >= MIN_EDITED_OPS
                and count >= MIN_EDITED_SHARE * sizes[kind][path]
            )
            is_nested = any((kind, outside) in modules for outside in instances_of(path)[1:])
            if is_one_sided and enough and not is_nested:
                modules[kind, path] = _ModuleEdit(kind, path)
    return modules


def _count_ops_by_kind(groups: Iterable[Iterable[Change]]) -> dict[Kind, Counter[str]]:
    """Count the added and removed ops of each instance."""
    counts: dict[Kind, Counter[str]] = {"added": Counter(), "removed": Counter()}
    for changes in groups:
        for change in ops_of(changes):
            if change.kind == "added" or change.kind == "removed":
                counts[change.kind].update(instances_of(path_of(change.node)))
    return counts


def _count_ops_by_module(graphs: Iterable[Graph]) -> Counter[str]:
    """Count the ops of each instance, in the graphs and in their bodies."""
    paths: Counter[str] = Counter()
    for graph in graphs:
        for part in graph.walk():
            paths.update(path_of(node) for node in part.nodes if _is_op(node))
    sizes: Counter[str] = Counter()
    for path, count in paths.items():
        for instance in instances_of(path):
            sizes[instance] += count
    return sizes


def _is_op(node: Node) -> bool:
    """Return True for the nodes that `ops_of` keeps."""
    return node.is_call and node.op != "operator.getitem"


def _edited_module_of(change: Change, modules: _Modules) -> _ModuleEdit | None:
    """Return the added or removed module of a change, or `None`."""
    for instance in instances_of(path_of(change.node)):
        if (change.kind, instance) in modules:
            return modules[change.kind, instance]
    return None


def _distribute_changes(finding: Finding, modules: _Modules, inside: Sequence[_ModuleEdit]) -> None:
    """Add the changes of a finding to their modules, and changes outside to the last module.

    The modules are changed in place. A consequence in a module of another kind than those of the
    finding goes to the last module, too.

    Args:
        finding: the finding to distribute.
        modules: all added and removed modules.
        inside: the modules of the finding's changes.
    """
    last, kinds = inside[-1], {module.kind for module in inside}
    for place in finding.places:
        for change in place.changes:
            module = _edited_module_of(change, modules)
            (last.outside if module is None else module.changes).append(change)
        for change in place.consequences:
            module = _edited_module_of(change, modules)
            is_edited = module is not None and module.kind in kinds
            (module if is_edited and module else last).consequences.append(change)


# -- the finding -----------------------------------------------------------------------------------


def _modules_finding(
    modules: Iterable[_ModuleEdit], flats: Sequence[NumberedGraph], origins: Origins
) -> Finding:
    """Return the finding of all added modules, or of all removed modules."""
    places = [_module_place(module) for module in modules]
    for place in places:
        origins.because(MODULE, place.changes[1:], place.changes[0])
    places.sort(key=lambda place: (origins.position(place.changes[0]), natural_key(place.module)))
    paths = tuple(place.module for place in places)
    inside = [
        change
        for place in places
        for change in ops_of((*place.changes, *place.consequences))
        if holds(place.module, path_of(change.node))
    ]
    kind = places[0].changes[0].kind
    equal_modules, similar_modules = _find_similar_modules(paths, flats)
    noun = "module" if len(paths) == 1 else "modules"
    summary = f"{len(paths)} {noun} {kind}: {abridged(paths)}"
    per_module = "each " if len(paths) > 1 else ""  # only once in the sentence
    for word, others in (("like", equal_modules), ("nearly like", similar_modules)):
        if others:
            summary += f", {per_module}{word} {abridged(others, MAX_LISTED)}"
            per_module = ""
    summary += f" ({len(inside):,} {'op' if len(inside) == 1 else 'ops'})"
    return Finding(tuple(places), summary, modules=paths, like=(*equal_modules, *similar_modules))


def _module_place(module: _ModuleEdit) -> Place:
    """Return the place of an added or removed module."""
    changes, consequences = [*module.changes], module.consequences
    # If the forward nodes matched nodes of another module, the module has only consequences.
    if not changes:
        inside = [change for change in consequences if holds(module.path, path_of(change.node))]
        changes, consequences = inside, [c for c in consequences if c not in inside]
    # The first change names the place. It should be an op, not an input of the module.
    changes.sort(key=lambda change: not _is_op(change.node))
    graph = changes[0].graph
    return Place(module.path, graph, (*changes, *module.outside), tuple(consequences))


# -- similar modules -------------------------------------------------------------------------------


def _graphs_with_changes(
    findings: Iterable[Numbered], origins: Origins, *, is_new: bool
) -> list[NumberedGraph]:
    """Return the new (or old) graphs that contain a node of a finding, each once."""
    flats: dict[int, NumberedGraph] = {}
    for _, finding in findings:
        for place in finding.places:
            for change in (*place.changes[:1], *place.consequences):
                node = origins.of(change)[is_new]
                if node is not None:
                    flats[id(node.flat)] = node.flat
    return list(flats.values())


def _find_similar_modules(
    paths: Sequence[str], flats: Sequence[NumberedGraph]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return modules of the same lists that equal a module of `paths`, and nearly equal modules."""
    lines = {path: Counter(ops) for path, ops in contents_of(flats, with_shapes=True).items()}
    # The end of a list comes first, because an appended layer is mostly a copy of the last layer.
    others = grouped(
        (path.rpartition(".")[0], path)
        for path in sorted(lines.keys() - {*paths}, key=natural_key, reverse=True)
    )
    equal: dict[str, None] = {}
    similar: dict[str, None] = {}
    for path in paths:
        # A candidate must differ less than this limit to become the best.
        own_lines, best = lines.get(path, Counter()), (MAX_DIFFERENCE, "")
        candidates = others.get(path.rpartition(".")[0], [])
        exact = next((other for other in candidates if lines[other] == own_lines), "")
        if exact:
            equal[exact] = None
            continue
        for other in candidates[:MAX_CANDIDATES]:
            differ = (own_lines - lines[other]).total() + (lines[other] - own_lines).total()
            best = min(best, (differ / (own_lines.total() + lines[other].total()), other))
        if best[1]:
            similar[best[1]] = None
    return tuple(equal), tuple(similar)


def merge_equal_edits(
    findings: Iterable[Finding], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """Return one finding for each edit with all its places, in the order of their first places.

    Args:
        findings: one finding for each place, in the order of the graphs.
        before, after: all graphs of the two captures.
        origins: the origins of the changes.
    """
    numbered = list(enumerate(findings))
    merged, others = separate_modules(numbered, before, after, origins)
    keys = EditKeys(origins)
    groups = grouped((keys.key(finding), (number, finding)) for number, finding in others)
    for group in _merge_calls(list(groups.values()), keys):
        # A key has no sizes, because an edit may have other sizes in another file. Within one
        # comparison, places whose added ops have other results are edits of their own, because only
        # the first place is printed. A group of one needs no results: its token is `False`.
        parts = grouped((len(group) > 1 and added_results(pair[1]), pair) for pair in group)
        merged += map(_merge_group, parts.values())
    merged.sort(key=lambda numbered_finding: numbered_finding[0])
    return [finding for _, finding in merged]


def _merge_calls(
    groups: Sequence[Sequence[Numbered]], keys: EditKeys
) -> Iterable[Sequence[Numbered]]:
    """Merge groups of findings in several calls of one shared module or function.

    The first finding of a group stands for the group.
    """
    first = [group[0][1] for group in groups]
    # An activation that twelve layers share has one path, `0.act`, so the module does not
    # distinguish its places.
    by_call: dict[Hashable, list[Numbered]] = {}
    for group, key in zip(groups, keys.keys_of_calls(first), strict=True):
        by_call.setdefault(key, []).extend(group)
    return by_call.values()


def _merge_group(group: Iterable[Numbered]) -> Numbered:
    """Merge the findings of one edit."""
    group = sorted(group, key=lambda numbered: numbered[0])
    number, first = group[0]
    return number, replace(first, places=tuple(p for _, numbered in group for p in numbered.places))


def merge_same_lines(findings: Iterable[Finding], origins: Origins) -> list[Finding]:
    """Merge the findings on one line of the user's code with the same ops, or of one setting.

    All instances of a module class run the same code. So an edit of one line of this code is one
    edit, even if the names of the modules and their surroundings differ.

    Args:
        findings: the findings of one comparison, identified.
        origins: the origins of their changes.
    """
    by_line: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        # All norms with another `eps` are one setting, wherever they are called.
        if setting := setting_of(finding, origins):
            by_line.setdefault(("setting", *setting), []).append(finding)
            continue
        # If no op was added or removed, constants changed, and a line may have several such edits.
        # Two equal changes in one line, such as a clone in two places of an expression, have two
        # tokens, because a token contains the columns (on Python 3.11 or newer).
        identity = finding.identity
        line = (identity.line, identity.op) if any(ops_of_edit(finding)) else ("",)
        # A finding without a line stays alone.
        by_line.setdefault(line if line[0] else id(finding), []).append(finding)
    return [_unite_places(group) for group in by_line.values()]


def merge_torch_modules(
    findings: Iterable[Finding], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """Merge the findings in exactly the same torch modules, and record the classes of modules.

    Users do not edit the code of a torch module. They construct it with different arguments, or
    replace it. This is the same edit in training and in inference, although the module runs
    different ops in the two.

    Args:
        findings: the findings of one comparison, identified.
        after: all graphs of the second capture.
        origins: receives the reasons.
    """
    classes = {path: name for graph in after for path, name in graph.classes.items()}
    user_modules = {path for graph in after for path in graph.own_modules}
    containers = {path.rpartition(".")[0] for path in classes}
    torch_modules = classes.keys() - user_modules - containers
    by_places: dict[Hashable, list[Finding]] = {}
    # A finding that stays alone has its `id` as key.
    for finding in findings:
        places_of_finding = frozenset((place.module, place.graph) for place in finding.places)
        is_simple_edit = not finding.summary and len(places_of_finding) == len(finding.places)
        is_in_torch_modules = is_simple_edit and all(
            module in torch_modules for module, _ in places_of_finding
        )
        by_places.setdefault(places_of_finding if is_in_torch_modules else id(finding), []).append(
            finding
        )
    joined = []
    for key, group in by_places.items():
        finding = group[0]
        if isinstance(key, frozenset):  # in torch modules only
            modules = tuple(sorted((module, classes[module]) for module, _ in key))
            identity = replace(finding.identity, where=digest("parts", modules))
            finding = replace(_unite_changes(group, origins), identity=identity)
        names = {classes.get(place.module, "") for place in finding.places}
        # Autograd's sums of gradients are in no module, and have no line.
        if len(names) == 1 and (
            finding.module or finding.source or "backward" not in finding.graph
        ):
            finding = replace(finding, class_name=names.pop())
        joined.append(finding)
    return joined


def _unite_places(group: Sequence[Finding]) -> Finding:
    """Merge findings into one finding with all their places."""
    first = group[0]
    if len(group) == 1:
        return first
    edits = tuple(dict.fromkeys(edit for finding in group for edit in finding.identity.edits))
    places = tuple(place for finding in group for place in finding.places)
    where = where_token(places, first.identity.op) if any(ops_of_edit(first)) else ""
    identity = replace(first.identity, edits=edits[:MAX_EDITS], where=where)
    return replace(first, places=places, identity=identity)


def _unite_changes(group: Sequence[Finding], origins: Origins) -> Finding:
    """Merge findings with equal places. Each place gets the changes of all findings."""
    places = []
    for place in group[0].places:
        key = (place.module, place.graph)
        same = [p for finding in group for p in finding.places if (p.module, p.graph) == key]
        changes = tuple(change for p in same for change in p.changes)
        # The first change of each finding gets the reason, except for the primary change itself.
        origins.because(TORCH_MODULE, (p.changes[0] for p in same), changes[0])
        consequences = tuple(change for p in same for change in p.consequences)
        places.append(replace(place, changes=changes, consequences=consequences))
    return replace(group[0], places=tuple(places))
