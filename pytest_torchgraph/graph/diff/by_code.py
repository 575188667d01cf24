"""Findings that are one edit by the code that they are of, which stored graphs do not tell.

Modules of another class are in `other_classes`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from ..model import Graph
from .findings import Finding
from .identify import MAX_EDITS, digest, ops_of_edit, where


def with_lines_as_one(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those of one line of the user's code, with the same ops, as one.

    The class of a module has one code: what its line does is one edit under whatever names its
    modules are called, though what surrounds them differs. Where no op came or went, constants did,
    and these may be several on one line.

    Args:
        findings: of one comparison, identified.
    """
    found: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        line = finding.identity.line if any(ops_of_edit(finding)) else ""
        found.setdefault(line or id(finding), []).append(finding)
    return [_in_all_places(group) for group in found.values()]


def with_parts_as_one(findings: Iterable[Finding], after: Sequence[Graph]) -> list[Finding]:
    """The findings, those in the very same modules of torch's as one.

    Nobody edits two lines of such a module: it was made with other arguments, or is another one. In
    training and in inference, where it runs other ops, that is the same edit.

    Args:
        findings: of one comparison, identified.
        after: all graphs of the second capture.
    """
    classes = {path: name for graph in after for path, name in graph.classes.items()}
    own = {path for graph in after for path in graph.own_modules}
    containers = {path.rpartition(".")[0] for path in classes}
    parts = classes.keys() - own - containers
    found: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        at = frozenset((place.module, place.graph) for place in finding.places)
        edits = not finding.summary and len(at) == len(finding.places)
        is_of_parts = edits and all(module in parts for module, _ in at)
        found.setdefault(at if is_of_parts else id(finding), []).append(finding)
    joined = []
    for key, group in found.items():
        finding = group[0]
        if isinstance(key, frozenset):
            modules = tuple(sorted((module, classes[module]) for module, _ in key))
            identity = replace(finding.identity, where=digest("parts", modules))
            finding = replace(_in_the_same_places(group), identity=identity)
        joined.append(finding)
    return joined


def _in_all_places(group: Sequence[Finding]) -> Finding:
    """Several findings as one that has the places of all."""
    first = group[0]
    if len(group) == 1:
        return first
    edits = tuple(dict.fromkeys(edit for each in group for edit in each.identity.edits))
    places = tuple(place for each in group for place in each.places)
    told = where(places, ops_of_edit(first))
    identity = replace(first.identity, edits=edits[:MAX_EDITS], where=told)
    return replace(first, places=places, identity=identity)


def _in_the_same_places(group: Sequence[Finding]) -> Finding:
    """Several findings as one that has, in each of their places, what all have there."""
    places = []
    for place in group[0].places:
        there = (place.module, place.graph)
        same = [p for finding in group for p in finding.places if (p.module, p.graph) == there]
        changes = tuple(change for p in same for change in p.changes)
        consequences = tuple(change for p in same for change in p.consequences)
        places.append(replace(place, changes=changes, consequences=consequences))
    return replace(group[0], places=tuple(places))
