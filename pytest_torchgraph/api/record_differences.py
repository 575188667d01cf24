"""The difference of two watches or logs, which have graph breaks and recompiles beside graphs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from ..graph.diff import (
    SIDES,
    ChangeKind,
    Finding,
    GraphDiff,
    Identity,
    Place,
    break_finding,
    break_keys,
    diff_graphs,
    unmatched,
)
from ..graph.events import GraphBreak, StackFrame
from ..graph.model import Graph
from ..watching.recompiles import Recompile
from ..words import counted, listed

if TYPE_CHECKING:
    from ..watching.compilations import Compilation
    from .result import Capture

_Code = tuple[str, str]
"""Function and file of compiled code. Two checkouts of a project have the same names of files."""


def diff_records(before: Capture, after: Capture) -> GraphDiff:
    """Return the difference of two captures with records.

    A graph break that only one side has is a finding, and explains the graphs of its function:
    those that the other side does not have as well are not compared, but counted. A recompile that
    only one side has is a finding, and explains graphs that only one side has.
    """
    # For each of the two sides: what only that side has.
    sides = before, after
    records = [side.record("graph breaks") for side in sides]
    breaks = unmatched([record.breaks for record in records], break_keys)
    recompiles = unmatched([record.recompiles for record in records], _recompile_keys)
    divided = {code for side in breaks for cut in side for code in _codes_of(cut)}
    # Functions that only one side compiled again, and so has more graphs of.
    repeated = {_code(each) for side in recompiles for each in side}
    compared: list[list[Graph]] = []
    uncompared: list[list[tuple[Graph, _Code]]] = []
    codes: list[dict[str, _Code]] = []
    for side in sides:
        graphs = [(graph, _code(c)) for graph, c in side.by_compilation()]
        codes.append({graph.name: code for graph, code in graphs})
        compared.append([graph for graph, code in graphs if code not in divided])
        uncompared.append([(graph, code) for graph, code in graphs if code in divided])
    # Functions of the graphs of divided functions that are not equal on both sides. Each is
    # counted in the first break that divides it.
    left = [code for side in unmatched(uncompared, lambda pair: pair[:1]) for _, code in side]
    findings: list[Finding] = []
    for kind, side, of_side in zip(SIDES, sides, breaks, strict=True):
        for cut in of_side:
            of_cut = [code for code in left if code in _codes_of(cut)]
            left = [code for code in left if code not in of_cut]
            findings.append(break_finding(kind, cut, [_place(side, cut.module)], _note(of_cut)))
    for kind, side, again in zip(SIDES, sides, recompiles, strict=True):
        # The pieces of a divided function are compiled again as well.
        findings += (
            _recompile_finding(kind, side, each) for each in again if _code(each) not in divided
        )
    difference = diff_graphs(*compared)
    findings += (
        finding
        for finding in difference.findings
        if not (finding.of_graph and _is_repeated(finding, codes, repeated))
    )
    return replace(difference, findings=tuple(findings))


def _recompile_keys(recompile: Recompile) -> Iterator[Hashable]:
    """Yield the keys of `unmatched`: recompiles are equal, or else at least of one function."""
    yield recompile.function, recompile.reasons, recompile.limit_hit
    yield recompile.function, recompile.limit_hit


def _codes_of(cut: GraphBreak) -> set[_Code]:
    """Return the functions that a break divides: its own, and those that call it."""
    return {_code(cut), *map(_code, cut.stack)}


def _code(place: Compilation | GraphBreak | Recompile | StackFrame) -> _Code:
    return place.function, PurePath(place.file).name


def _place(side: Capture, module: str) -> Place:
    """Return a place in the side's first graph: a break or recompile has no graph of its own."""
    return Place(module, side.graphs[0].name if side.graphs else "", ())


def _note(codes: Sequence[_Code]) -> str:
    """Return the end of a break's summary: how many graphs are not compared; "" for none."""
    if not codes:
        return ""
    functions = listed(dict.fromkeys(function for function, _ in codes), 3)
    return f" ({counted(len(codes), 'graph')} of {functions} not compared)"


def _recompile_finding(kind: ChangeKind, side: Capture, recompile: Recompile) -> Finding:
    """Return the finding for a recompile that only one side has, "added" or "removed"."""
    summary = f"recompile {kind}: {str(recompile).splitlines()[0]}"
    token = f"recompile {kind} {recompile.function} {recompile.reasons}"
    place = _place(side, "")
    identity = Identity((token,))
    return Finding((place,), summary, identity=identity, of_cut=kind, recompile=recompile)


def _is_repeated(finding: Finding, codes: Sequence[dict[str, _Code]], repeated: set[_Code]) -> bool:
    """Return True for a graph that only one side has, of a function that was compiled again."""
    kinds = {change.kind for change in finding.changes}
    return any(
        codes[side].get(finding.graph) in repeated
        for side, kind in enumerate(SIDES)
        if kinds == {kind}
    )
