"""Modules that came or went: findings of most of an instance's nodes become one of the instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...words import counted
from ..equality.numbered_graph import NumberedGraph
from ..model import Graph, Node
from .abridged import abridged
from .findings import Change, Finding, Place, ops_of
from .origins import Origins
from .paths import holds, instances_of, natural, path_of

Kind = Literal["added", "removed"]
MOST = 0.5
"""Which share of a module's ops must be new, and which share of a finding's changes be in new
modules, for the finding to be of the modules that came."""
LEAST = 2
"""How many ops a module must have that came, what follows from these left out; a single op says
more than its module."""
ALIKE = 0.2
"""Which share of its lines a module may have of its own and still be nearly like another one."""
NEAREST = 8
"""How many modules are tried for what a new one is nearly like, the last ones of its list."""
LISTED = 2
"""How many modules are named that others are like."""

Numbered = tuple[int, Finding]
"""A finding and its number in the order of the graphs."""


@dataclass
class _Module:
    """A module that came or went, with what was found in it."""

    kind: Kind
    path: str
    changes: list[Change] = field(default_factory=list)
    beside: list[Change] = field(default_factory=list)
    consequences: list[Change] = field(default_factory=list)


_Modules = Mapping[tuple[str, str], _Module]
"""The modules that came or went, by kind and path."""


def set_modules_apart(
    findings: Sequence[Numbered], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> tuple[list[Numbered], list[Numbered]]:
    """The findings of modules that came and of those that went, at most one each, and the others.

    Args:
        findings: one for each place.
        before, after: all graphs of the two captures.
        origins: where the changes come from.
    """
    modules = _came_or_went(findings, before, after)
    if not modules:
        return [], list(findings)
    others: list[Numbered] = []
    first: dict[Kind, int] = {}
    for number, finding in findings:
        inside = [module for change in finding.changes if (module := _of(change, modules))]
        if finding.of_graph or len(inside) < MOST * len(finding.changes):
            others.append((number, finding))
            continue
        for module in inside:
            first.setdefault(module.kind, number)
        _distribute(finding, modules, inside)
    flats = {side: _flats(findings, origins, is_new=side) for side in (False, True)}
    found: list[Numbered] = []
    for kind in ("added", "removed"):
        if kind in first:
            parts = [
                m for m in modules.values() if m.kind == kind and (m.changes or m.consequences)
            ]
            found.append((first[kind], _finding(parts, flats[kind == "added"], origins)))
    return found, others


# -- which modules ---------------------------------------------------------------------------------


def _came_or_went(
    findings: Sequence[Numbered], before: Sequence[Graph], after: Sequence[Graph]
) -> _Modules:
    """The outermost instances that only one side has, if most of their ops are new, or gone."""
    edited = _counted(place.changes for _, finding in findings for place in finding.places)
    if all(count < LEAST for counts in edited.values() for count in counts.values()):
        return {}
    follows = _counted(place.consequences for _, each in findings for place in each.places)
    sizes = {"added": _sizes(after), "removed": _sizes(before)}
    there = {"added": sizes["removed"], "removed": sizes["added"]}
    modules: dict[tuple[str, str], _Module] = {}
    kinds: tuple[Kind, ...] = ("added", "removed")
    for kind in kinds:
        for path in sorted(edited[kind], key=lambda path: path.count(".")):
            alone = path not in there[kind]
            count = edited[kind][path] + follows[kind][path]
            enough = edited[kind][path] >= LEAST and count >= MOST * sizes[kind][path]
            outer = any((kind, outside) in modules for outside in instances_of(path)[1:])
            if alone and enough and not outer:
                modules[kind, path] = _Module(kind, path)
    return modules


def _counted(groups: Iterable[Iterable[Change]]) -> dict[Kind, Counter[str]]:
    """How many ops came and went in the instances that they are in."""
    counts: dict[Kind, Counter[str]] = {"added": Counter(), "removed": Counter()}
    for changes in groups:
        for change in ops_of(changes):
            if change.kind == "added" or change.kind == "removed":
                counts[change.kind].update(instances_of(path_of(change.node)))
    return counts


def _sizes(graphs: Iterable[Graph]) -> Counter[str]:
    """How many ops the instances of graphs have."""
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
    return node.is_call and node.op != "operator.getitem"


def _of(change: Change, modules: _Modules) -> _Module | None:
    """The module that came or went and that a change belongs to."""
    for instance in instances_of(path_of(change.node)):
        if (change.kind, instance) in modules:
            return modules[change.kind, instance]
    return None


def _distribute(finding: Finding, modules: _Modules, inside: Sequence[_Module]) -> None:
    """Put the changes of a finding to their modules; what is in none of these to the last one.

    Args:
        finding: what was found.
        modules: those that came or went.
        inside: the modules of its changes.
    """
    last, kinds = inside[-1], {module.kind for module in inside}
    for place in finding.places:
        for change in place.changes:
            module = _of(change, modules)
            (last.beside if module is None else module.changes).append(change)
        for change in place.consequences:
            module = _of(change, modules)
            known = module is not None and module.kind in kinds
            (module if known and module else last).consequences.append(change)


# -- the finding -----------------------------------------------------------------------------------


def _finding(
    modules: Iterable[_Module], flats: Sequence[NumberedGraph], origins: Origins
) -> Finding:
    """The finding of all modules that came, or of all that went."""
    places = [_place(module) for module in modules]
    places.sort(key=lambda place: (origins.position(place.changes[0]), natural(place.module)))
    paths = tuple(place.module for place in places)
    inside = [
        change
        for place in places
        for change in ops_of((*place.changes, *place.consequences))
        if holds(place.module, path_of(change.node))
    ]
    kind = places[0].changes[0].kind
    like, nearly = _alike(paths, flats)
    summary = f"{counted(len(paths), 'module')} {kind}: {abridged(paths)}"
    each = "each " if len(paths) > 1 else ""
    for word, others in (("like", like), ("nearly like", nearly)):
        if others:
            summary += f", {each}{word} {abridged(others, LISTED)}"
            each = ""
    summary += f" ({counted(len(inside), 'op')})"
    return Finding(tuple(places), summary, modules=paths, like=(*like, *nearly))


def _place(module: _Module) -> Place:
    changes, consequences = [*module.changes], module.consequences
    if not changes:  # what is left of a module that took another one's nodes in the forward
        own = [change for change in consequences if holds(module.path, path_of(change.node))]
        changes, consequences = own, [c for c in consequences if c not in own]
    changes.sort(key=lambda change: not _is_op(change.node))
    graph = changes[0].graph
    return Place(module.path, graph, (*changes, *module.beside), tuple(consequences))


# -- what they are like ----------------------------------------------------------------------------


def _flats(findings: Iterable[Numbered], origins: Origins, *, is_new: bool) -> list[NumberedGraph]:
    """The graphs of one side that have changes."""
    flats: dict[int, NumberedGraph] = {}
    for _, finding in findings:
        for place in finding.places:
            for change in (*place.changes[:1], *place.consequences):
                node = origins.of(change)[is_new]
                if node is not None:
                    flats[id(node.flat)] = node.flat
    return list(flats.values())


def _alike(
    paths: Sequence[str], flats: Sequence[NumberedGraph]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What modules are like, and what they are nearly like, among others of the same lists."""
    lists = {path.rpartition(".")[0] for path in paths}
    lines: dict[str, Counter[Hashable]] = {}
    for flat in flats:
        for i, node in enumerate(flat.nodes):
            if not node.is_call:
                continue
            for instance in instances_of(path_of(node)):
                if instance.rpartition(".")[0] in lists:
                    line = _line(flat, i, instance)
                    lines.setdefault(instance, Counter())[line] += 1
    others: dict[str, list[str]] = {}
    for path in sorted(lines.keys() - {*paths}, key=natural, reverse=True):
        others.setdefault(path.rpartition(".")[0], []).append(path)
    like: dict[str, None] = {}
    nearly: dict[str, None] = {}
    for path in paths:
        mine, best = lines.get(path, Counter()), (ALIKE, "")
        candidates = others.get(path.rpartition(".")[0], [])
        exact = next((other for other in candidates if lines[other] == mine), "")
        if exact:
            like[exact] = None
            continue
        for other in candidates[:NEAREST]:
            differ = (mine - lines[other]).total() + (lines[other] - mine).total()
            best = min(best, (differ / (mine.total() + lines[other].total()), other))
        if best[1]:
            nearly[best[1]] = None
    return tuple(like), tuple(nearly)


def _line(flat: NumberedGraph, i: int, instance: str) -> Hashable:
    """A node as it is in every instance of a class: values from outside may be any."""
    operands = [flat.nodes[p].name for p in flat.operands[i][: flat.arity[i]]]
    inside = tuple(name[len(instance) :] if holds(instance, name) else "" for name in operands)
    name = flat.nodes[i].name
    own = name[len(instance) :] if holds(instance, name) else ""
    return flat.graph.kind, own, flat.labels[i], inside
