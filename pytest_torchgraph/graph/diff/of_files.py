"""The difference of two files, with what they do not compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from ...words import grouped, listed
from ..digits import fewest
from ..model import Graph, Node
from ..program import Program, missing_facts
from ..select import tensors
from ..text import format_result
from .align import align_items
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
    other strides and devices beside an edit, if both files have them. If the difference is `None`,
    they are lines after those of the op counts.
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
    # The two files can divide their ranks into more or fewer parts.
    for before, after in zip(_parts(old), _parts(new), strict=False):
        kinds = {graph.name: graph.kind for graph in before.graphs}
        for graph in after.graphs:
            if (kind := kinds.get(graph.name, graph.kind)) != graph.kind:
                yield f"graph {graph.name!r} is {graph.kind!r}, was {kind!r}"


def _parts(program: Program) -> list[Program]:
    """Return the programs of the classes of ranks; without ranks, the program itself."""
    return [part for _, part in program.sections] or [program]


def losses(old: Program, new: Program) -> list[str]:
    """Return a line for each way in which a file stores less than the old one."""
    facts = missing_facts(new, old)
    lines = [f"{NO_LONGER}: {', '.join(facts)}"] if facts else []
    version, former = (min(part.version for part in _parts(side)) for side in (new, old))
    if version < former and (new.graphs or new.counts):
        lines.append(f"format {version}, was {former}")
    # Fewer digits store less; `None` is exact.
    if new.digits != old.digits and fewest((new.digits, old.digits)) != old.digits:
        lines.append(digits_line(old, new))
    return lines


def digits_line(old: Program, new: Program) -> str:
    """Return the line about the digits of the float constants."""
    now, then = ("exact" if side.digits is None else side.digits for side in (new, old))
    return f"digits {now}, was {then}"


def layout_lines(before: Sequence[Graph], after: Sequence[Graph]) -> list[str]:
    """Return the line of results with other strides or devices, for graphs that differ otherwise.

    Nodes have other names beside an edit, so nodes of one op, dtype and shape are paired in their
    order. The others are paired by dtype and shape, and at last only their devices are compared.
    """
    parts = ([part for graph in side for part in graph.walk()] for side in (before, after))
    differing: Counter[str] = Counter()
    rest: tuple[list[Node], list[Node]] = [], []
    for old, new in zip_longest(*parts):
        nodes = [part.nodes if part is not None else () for part in (old, new)]
        tokens = [[(node.op, format_result(node.result)) for node in side] for side in nodes]
        pairs = dict(align_items(*tokens))
        for k, j in pairs.items():
            op, result = tokens[0][k]
            differing.update(_describe(op, result, [nodes[0][k]], [nodes[1][j]]))
        rest[0].extend(node for k, node in enumerate(nodes[0]) if k not in pairs)
        paired = {*pairs.values()}
        rest[1].extend(node for j, node in enumerate(nodes[1]) if j not in paired)
    by_result = [grouped((format_result(node.result), node) for node in side) for side in rest]
    for result, replaced in by_result[0].items():
        differing.update(_describe("replaced ops", result, replaced, by_result[1].get(result, [])))
    metas = [[meta for node in side for meta in tensors(node.result)] for side in rest]
    devices = [dict.fromkeys(meta.device for meta in side if meta.device) for side in metas]
    shown = " ".join(differing)
    # A device that a line above names needs no line of its own.
    if others := [name for name in devices[1] if name not in devices[0] and name not in shown]:
        known = ", ".join(devices[0]) or "none"
        differing[f"replaced and added ops, before: on {known}, now: on {', '.join(others)}"] = 1
    lines = [f"{line} ({count} times)" if count > 1 else line for line, count in differing.items()]
    return [f"{LAYOUTS_DIFFER}: {listed(lines, 2, between='; ')}"] if lines else []


def _describe(op: str, result: str, old: Sequence[Node], new: Sequence[Node]) -> Iterator[str]:
    """Yield a line if some results have other strides or devices.

    Args:
        op: the op, as the line begins.
        result: dtype and shape, which all these nodes have in common.
        old, new: the nodes of the two sides.
    """
    texts = (Counter(format_result(node.result, full=True) for node in side) for side in (old, new))
    was, now = texts
    sides = was - now, now - was
    # If only one side has further results, these were added or removed.
    if all(sides):
        was_text, now_text = (
            listed(text.removeprefix(f"{result} ") for text in side) for side in sides
        )
        yield f"{op} : {result}, before: {was_text}, now: {now_text}"
