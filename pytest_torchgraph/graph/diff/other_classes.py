"""Modules of a different class, if this changes the number of graphs.

One class of graph-network convolution may break the graph while another does not. Then most graphs
of the step are added or removed, but the edit is the changed class. Stored graphs do not record the
classes of modules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from ...words import counted
from ..model import Graph, Node
from ..text import format_arg
from .constants import iter_constants
from .findings import Change, Finding, Place, nodes_of_changes, one_place, ops_of
from .origins import Origins
from .paths import abridged, holds
from .union_find import UnionFind

_RESUMED = re.compile(r"torch_dynamo_resume_in_.+_at_(\d+)")

Line = tuple[str, int]
"""A line of code: its file and its number."""


@dataclass(frozen=True, slots=True)
class _ClassChange:
    """Modules that all changed from one class to another.

    Attributes:
        before, after: the names of the classes.
        paths: the paths of the modules.
        class_names: qualified names of the classes of these modules and of modules inside them, and
            of all other modules.
        shared_lines: lines of functions that both sides ran, for nodes whose module is unknown.
    """

    before: str
    after: str
    paths: Sequence[str]
    class_names: tuple[Set[str], Set[str]]
    shared_lines: Set[Line]

    def is_outside(self, node: Node) -> bool:
        """Return False if a node is known to belong to the modules.

        Dynamo may resume a frame in the middle of a module, where torch records no module. If the
        file can contain classes only of these modules or only of other modules, for example the
        file of a library, the file decides. If it can contain both, the function decides.
        """
        if any(holds(path, node.module) for path in self.paths):
            return False
        if not _is_unknown(node, self.paths) or node.source is None:
            return True
        file = node.source.file
        is_own, is_other = (
            any(_may_be_in_file(name, file, self.class_names[0]) for name in side)
            for side in self.class_names
        )
        return is_other and (not is_own or (file, node.source.line) in self.shared_lines)


def merge_changed_classes(
    findings: Sequence[Finding], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """Merge the findings of modules that changed their class.

    In all other code, an op that only one side has is an edit of its own.

    Args:
        findings: the findings of one comparison.
        before, after: all graphs of the two captures.
        origins: the origins of the changes.
    """
    exchanged = _find_class_change(before, after)
    if exchanged is None or not any(map(_is_whole_graph, findings)):
        return list(findings)
    graphs = {
        id(graph.nodes[-1]): graph
        for pair in origins.pairs
        if None in pair
        for graph in pair
        if graph is not None
    }
    # If graphs were added or removed, the run counts of the remaining graphs change.
    merged = [f for f in findings if f.of_graph or _is_in_modules(exchanged, f)]
    edited = {change.graph for f in merged for place in f.places for change in place.changes}
    numbers = set(map(id, merged))
    # Findings about only the inputs or outputs of a changed graph belong to the change, too.
    merged = [f for f in findings if id(f) in numbers or _is_passed_on(f, edited)]
    sides: tuple[list[Change], list[Change]] = [], []
    for finding in merged:
        for change in _iter_op_changes(finding, graphs):
            for side, node in zip(sides, (change.before, change.after), strict=True):
                if node is not None and exchanged.is_outside(node):
                    side.append(change)
    rest = _changes_outside(*sides)
    remaining: list[Finding] = []
    numbers = set(map(id, merged))
    for finding in findings:
        if finding is merged[0]:
            remaining += [_merge_all(exchanged, merged), *([one_place(rest)] if rest else [])]
        elif id(finding) not in numbers:
            remaining.append(finding)
    return remaining


def _find_class_change(before: Sequence[Graph], after: Sequence[Graph]) -> _ClassChange | None:
    """Return the modules that changed their class; `None` if not all made the same change."""
    old_classes, new_classes = (
        {p: n for g in side for p, n in g.classes.items()} for side in (before, after)
    )
    different = [
        path
        for path in old_classes
        if path and new_classes.get(path, old_classes[path]) != old_classes[path]
    ]
    paths = [p for p in different if not any(holds(o, p) for o in different if o != p)]
    classes = {(old_classes[path], new_classes[path]) for path in paths}
    if len(classes) != 1:
        return None
    class_names: tuple[set[str], set[str]] = set(), set()
    for graph in (*before, *after):
        for path, module in graph.own_modules.items():
            class_names[not any(holds(p, path) for p in paths)].add(module.name)
    return _ClassChange(
        *classes.pop(), paths, class_names, _find_shared_lines(before, after, paths)
    )


def _find_shared_lines(
    before: Sequence[Graph], after: Sequence[Graph], paths: Sequence[str]
) -> Set[Line]:
    """Return all lines of the functions in which both sides ran at least one line.

    Lines that one graph has under the same function, or under parts of one resumed function, count
    as one function.
    """
    functions = UnionFind[Line]()
    lines_of_sides: tuple[set[Line], set[Line]] = set(), set()
    for side, graphs in zip(lines_of_sides, (before, after), strict=True):
        for graph in graphs:
            first_lines: dict[tuple[str, str], Line] = {}
            for node in graph.nodes:
                source = node.source
                if source is None or not _is_unknown(node, paths):
                    continue
                line = source.file, source.line
                side.add(line)
                functions.join(first_lines.setdefault((source.file, source.function), line), line)
                if resumed := _RESUMED.fullmatch(source.function):
                    functions.join((source.file, int(resumed[1])), line)
    shared = {functions.find(line) for line in lines_of_sides[0] & lines_of_sides[1]}
    return {
        line for line in lines_of_sides[0] | lines_of_sides[1] if functions.find(line) in shared
    }


def _is_unknown(node: Node, paths: Sequence[str]) -> bool:
    """Return True if a node is in no module, or in a module around one of `paths`."""
    return not node.module or any(holds(node.module, path) for path in paths)


def _is_whole_graph(finding: Finding) -> bool:
    return finding.of_graph and finding.kind in ("added", "removed")


def _is_in_modules(exchanged: _ClassChange, finding: Finding) -> bool:
    return not all(map(exchanged.is_outside, nodes_of_changes(ops_of(finding.changes))))


def _is_passed_on(finding: Finding, graphs: Set[str]) -> bool:
    """Return True if a finding has only inputs or outputs of these graphs."""
    changes = [change for place in finding.places for change in place.changes]
    if finding.summary or any(change.node.is_call for change in changes):
        return False
    return all(change.graph in graphs for change in changes)


def _iter_op_changes(finding: Finding, graphs: Mapping[int, Graph]) -> Iterator[Change]:
    """Yield the ops of a finding. A whole graph has all its ops, but a backward has none."""
    for place in finding.places:
        for change in place.changes:
            graph = graphs.get(id(change.node)) if finding.of_graph else None
            if graph is None:
                yield from ops_of((change,))
                continue
            for node in graph.nodes if graph.kind != "backward" else ():
                before, after = (None, node) if change.before is None else (node, None)
                yield from ops_of((Change(change.kind, graph.name, before, after),))


def _changes_outside(removed: Sequence[Change], added: Sequence[Change]) -> list[Change]:
    """Return the ops of other code that only one side has, in pairs if both have equally many."""
    befores = [change.before for change in removed if change.before is not None]
    afters = [change.after for change in added if change.after is not None]
    counts = [Counter(map(_op_and_constants, nodes)) for nodes in (befores, afters)]
    old = _take_surplus(befores, counts[0] - counts[1])
    new = _take_surplus(afters, counts[1] - counts[0])
    graphs = {id(n): c.graph for c in (*removed, *added) for n in (c.before, c.after)}
    if len(old) == len(new):
        return [Change("changed", graphs[id(y)], x, y) for x, y in zip(old, new, strict=True)]
    return [
        *(Change("added", graphs[id(node)], None, node) for node in new),
        *(Change("removed", graphs[id(node)], node, None) for node in old),
    ]


def _take_surplus(nodes: Sequence[Node], more: Counter[Hashable]) -> list[Node]:
    surplus = []
    for node in nodes:
        if more[_op_and_constants(node)] > 0:
            more[_op_and_constants(node)] -= 1
            surplus.append(node)
    return surplus


def _op_and_constants(node: Node) -> Hashable:
    return node.op, tuple(format_arg(value) for value in iter_constants((node.args, node.kwargs)))


def _merge_all(exchanged: _ClassChange, merged: Sequence[Finding]) -> Finding:
    places = [place for finding in merged for place in finding.places]
    changes = tuple(change for place in places for change in place.changes)
    consequences = tuple(change for place in places for change in place.consequences)
    counts = Counter(finding.kind for finding in merged if _is_whole_graph(finding))
    parts = [f"{counted(count, 'graph')} {kind}" for kind, count in counts.items()]
    summary = (
        f"{exchanged.before} -> {exchanged.after} in {abridged(exchanged.paths)} "
        f"({', '.join(parts)})"
    )
    place = Place("", places[0].graph, changes, consequences)
    return Finding((place,), summary)


def _may_be_in_file(name: str, file: str, library: Set[str]) -> bool:
    """Return True if a class of this qualified name may be in a file.

    Args:
        name: the qualified name.
        file: the file, relative to the root or to the directory of installed packages.
        library: qualified names of classes. A file in the top-level package of one of them is not a
            script.
    """
    parts = file.removesuffix(".py").split("/")
    if name.startswith("__main__."):
        return parts[0] not in {other.partition(".")[0] for other in library}
    return any(name.startswith(".".join(parts[k:]) + ".") for k in range(len(parts)))
