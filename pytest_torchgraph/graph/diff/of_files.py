"""The difference of two files, with what they do not compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...words import grouped, listed
from ..digits import fewest
from ..model import Graph
from ..program import Program, missing_facts
from ..text import format_result
from .compare import diff_programs
from .findings import GraphDiff
from .joining import problem_finding

NO_LONGER = "no longer stored, so no longer compared"
"""Beginning of the line about facts that only the old file has."""
LAYOUTS_DIFFER = "strides or devices differ"
"""Beginning of the line about results with other strides or devices."""


def diff_files(old: Program, new: Program) -> tuple[GraphDiff | None, list[str]]:
    """Return the difference of two files; see `diff_programs`.

    Facts that the new file has no longer are a finding, and so are graphs of another kind, and
    other strides and devices beside an edit, if both files have them.
    """
    difference, counts = diff_programs(old, new)
    problems = [*losses(old, new), *_kinds(old, new)]
    if difference and old.header.detail == new.header.detail == "full":
        sides = ([g for part in _parts(side) for g in part.graphs] for side in (old, new))
        problems += layout_lines(*sides)
    if difference is None:
        return None, [*counts, *problems]
    findings = (*difference.findings, *map(problem_finding, problems))
    return replace(difference, findings=findings), counts


def _kinds(old: Program, new: Program) -> Iterator[str]:
    """Yield a line for each graph of another kind, whose nodes may all be equal."""
    for before, after in zip(_parts(old), _parts(new), strict=False):
        kinds = {graph.name: graph.kind for graph in before.graphs}
        for graph in after.graphs:
            if (kind := kinds.get(graph.name, graph.kind)) != graph.kind:
                yield f"graph {graph.name!r} is {graph.kind!r}, was {kind!r}"


def _parts(program: Program) -> list[Program]:
    return [part for _, part in program.sections] or [program]


def losses(old: Program, new: Program) -> list[str]:
    """Return a line for each way in which a file stores less than the old one."""
    facts = missing_facts(new, old)
    lines = [f"{NO_LONGER}: {', '.join(facts)}"] if facts else []
    version, former = (min(part.version for part in _parts(side)) for side in (new, old))
    if version < former and (new.graphs or new.counts):
        lines.append(f"format {version}, was {former}")
    if new.digits != old.digits and fewest((new.digits, old.digits)) != old.digits:
        lines.append(digits_line(old, new))
    return lines


def digits_line(old: Program, new: Program) -> str:
    """Return the line about the digits of the float constants."""
    now, then = ("exact" if side.digits is None else side.digits for side in (new, old))
    return f"digits {now}, was {then}"


def layout_lines(before: Sequence[Graph], after: Sequence[Graph]) -> list[str]:
    """Return a line of results with other strides or devices, if the graphs differ otherwise, too.

    Nodes have other names beside an edit, so results of one op, dtype and shape are counted, then
    those of ops that were replaced.
    """
    sides = [_layouts(graphs) for graphs in (before, after)]
    differing: list[str] = []
    replaced: list[dict[str, Counter[str]]] = [{}, {}]
    for op, result in dict.fromkeys((*sides[0], *sides[1])):
        old, new = (Counter(side.get((op, result))) for side in sides)
        old, new = old - new, new - old
        differing += _describe(op, result, old, new)
        for texts, rest in zip((old, new), replaced, strict=True):
            if not (old and new):
                rest[result] = rest.get(result, Counter()) + texts
    for result, old in replaced[0].items():
        differing += _describe("replaced ops", result, old, replaced[1].get(result, Counter()))
    return [f"{LAYOUTS_DIFFER}: {listed(differing, 2, between='; ')}"] if differing else []


def _layouts(graphs: Sequence[Graph]) -> dict[tuple[str, str], list[str]]:
    """Return the results with strides and devices, by op, dtype and shape."""
    return grouped(
        ((node.op, format_result(node.result)), format_result(node.result, full=True))
        for graph in graphs
        for part in graph.walk()
        for node in part.nodes
    )


def _describe(op: str, result: str, old: Counter[str], new: Counter[str]) -> Iterator[str]:
    """Yield a line if some results have other strides or devices."""
    sides = old - new, new - old
    if all(sides):
        was, now = (listed(text.removeprefix(f"{result} ") for text in side) for side in sides)
        yield f"{op} : {result}, before: {was}, now: {now}"
