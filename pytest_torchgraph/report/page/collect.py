"""Captures and comparisons as plain data, which JSON and pytest-xdist can carry.

Each function here makes what the script shows in one place; the keys of the data are its.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import CaptureError
from ...graph.collectives import format_bytes, format_tensor, format_wait
from ...graph.cost.cost import Cost
from ...graph.diff.findings import Change, Finding, GraphDiff
from ...graph.diff.paths import abridged
from ...graph.model import Graph
from ...words import amount, counted
from .html import Data
from .nodes import bodies_data, changed_nodes_data, compared_data, costs_before, nodes_data

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...graph.collectives import Collective
    from ...graph.cost.recomputed import Recomputed
    from ...render.layout.scene import Element, Sides
    from ...render.whole import Drawing
    from .html import Parts


def capture_data(capture: Capture, parts: Parts | None = None) -> Data:
    """The data of a capture: graphs with op counts, cost, collectives, breaks, recompiles.

    Args:
        capture: the capture.
        parts: where the nodes of its graphs are put; without it the data have none.
    """
    try:
        graphs = capture.program
        note = "" if graphs else "no graph was compiled"
    except CaptureError as error:  # some are built when they are first read
        graphs, note = (), str(error)
    return {
        "via": capture.via,
        "rank": capture.rank,
        "note": note,
        "cost": cost_data(graphs, capture.by_module, _facts(capture, "recomputed")),
        "blocks": blocks_data(graphs),
        "collectives": collectives_data(capture),
        "graphs": [
            {
                "name": graph.name,
                "kind": graph.kind,
                "level": graph.level,
                "count": sum(len(each.nodes) for each in graph.walk()),
                "ops": [[op, count] for op, count in graph.op_counts.most_common()],
                "runs": graph.runs if graph.eager else 0,
                "cause": _cause(graph),
                "nodes": parts.add(bodies_data(graph)) if parts is not None else "",
            }
            for graph in graphs
        ],
        "breaks": [
            {
                "kind": graph_break.kind,
                "reason": graph_break.reason,
                "hint": graph_break.hint or "",
                "file": graph_break.file,
                "line": graph_break.line,
                "code": graph_break.code,
                "occurrences": graph_break.occurrences,
            }
            for graph_break in _facts(capture, "breaks")
        ],
        "recompiles": [
            {
                "function": recompile.function,
                "file": recompile.file,
                "line": recompile.line,
                "reasons": list(recompile.reasons),
                "details": str(recompile).splitlines()[1:],
            }
            for recompile in _facts(capture, "recompiles")
        ],
    }


def _cause(graph: Graph) -> Data | None:
    """The graph break that an eager graph is behind; None where none is known."""
    cause = graph.cause
    if cause is None:
        return None
    return {"kind": cause.kind, "place": f"{cause.file}:{cause.line}", "code": cause.code.strip()}


def _facts(capture: Capture, name: str) -> tuple[Any, ...]:
    """An attribute of a capture; () where its mechanism does not have it."""
    try:
        facts: tuple[Any, ...] = getattr(capture, name)
    except CaptureError:
        return ()
    return facts


def comparison_data(
    *,
    file: str,
    headline: str,
    accept: str,
    lines: Iterable[str],
    diff: GraphDiff | None = None,
    drawing: Drawing | None = None,
    svg: str = "",
    note: str = "",
    ranks: str = "",
) -> Data:
    """The data of a comparison that failed; of one of several ranks, those of a part of these.

    Args:
        file: the stored file, as the user would type it.
        headline: what is wrong, in one line.
        accept: the command that stores what was captured.
        lines: the difference of the texts, as unified diff.
        diff: the difference of the graphs, where there is one.
        drawing: the drawing of the difference, for the `id`s of its elements.
        svg: the text of its SVG, "" where there is none.
        note: why there is no drawing, or what it lacks.
        ranks: which ranks it is of, "" where it is not of ranks.
    """
    findings = diff.findings if diff else ()
    return {
        "file": file,
        "ranks": ranks,
        "headline": headline,
        "accept": accept,
        "diff": list(lines),
        "svg": svg,
        "note": note,
        "findings": [_finding(each, drawing) for each in findings],
        "cost": _changed_cost(diff) if diff else None,
        "nodes": changed_nodes_data(diff, drawing) if diff else [],
        "graphs": compared_data(diff) if diff else [],
        "sides": _sides(diff, drawing.sides) if diff and drawing and drawing.sides else None,
    }


def _sides(diff: GraphDiff, sides: Sides) -> Data:
    """What of a drawing each side has not, the labels that are others on it, its further edges.

    What the nodes cost is in their data; those of the old graphs are not there, so that their costs
    are here.
    """
    data: Data = {
        name: {
            "without": list(side.without),
            "labels": side.labels,
            "edges": [list(edge) for edge in side.edges],
        }
        for name, side in (("before", sides.before), ("after", sides.after))
    }
    data["before"]["costs"] = costs_before(diff, sides)
    return data


def _changed_cost(diff: GraphDiff) -> Data | None:
    """What the modules of both sides cost."""
    before = [pair.before for pair in diff.graphs if pair.before is not None]
    after = [pair.after for pair in diff.graphs if pair.after is not None]
    return changed_cost_data(before, after)


def picture_data(
    title: str, graphs: Iterable[Graph], drawing: Drawing | None, svg: str, note: str
) -> Data:
    """The data of another drawing: of graph breaks, or of ops that should not be there.

    Args:
        title: what is wrong, in one line.
        graphs: the graphs whose nodes the page lists.
        drawing: the drawing, for the `id`s of its elements.
        svg: the text of its SVG, "" where there is none.
        note: why there is no drawing, or what it lacks.
    """
    nodes = nodes_data(graphs, drawing)
    findings = [
        {"sign": sign, "summary": element.label or ", ".join(element.nodes), "ids": [key]}
        for key, element in (drawing.elements.items() if drawing is not None else ())
        if (sign := _sign(element))
    ]
    return {"title": title, "svg": svg, "note": note, "nodes": nodes, "findings": findings}


def _sign(element: Element) -> str:
    """The sign of a graph break or a surplus op; "" for every other element."""
    from ...render.look.changes import BREAK_SIGN
    from ...render.look.changes import SIGNS as MARK_SIGNS

    if element.kind == "break":
        return BREAK_SIGN
    return MARK_SIGNS["surplus"] if element.change == "surplus" else ""


def _finding(finding: Finding, drawing: Drawing | None) -> Data:
    head, _, more = finding.to_text().partition("\n")
    sign, _, summary = head.partition(" ")
    return {
        "sign": sign,
        "summary": summary,
        "more": more,
        "ids": _ids(finding.changes, drawing),
        "follows": _ids(finding.consequences, drawing),
    }


def _ids(changes: Iterable[Change], drawing: Drawing | None) -> list[str]:
    """The `id`s of the boxes that show these changes."""
    if drawing is None:
        return []
    ids = [
        drawing.id_of(change.graph, change.node.name, is_old=change.after is None)
        for change in changes
    ]
    return [each for each in dict.fromkeys(ids) if each]


MOST_COLLECTIVES = 200
"""How many collectives are listed at most: each capture of a run has its list in the page."""


def collectives_data(capture: Capture) -> Data | None:
    """The collectives of a capture; None where there are none, or where it does not know them."""
    try:
        found = capture.collectives
    except (CaptureError, AssertionError):  # of a watch that saw no graph, or not all
        return None
    if not found:
        return None
    often = Counter(each.group for each in found)
    over = ", ".join(f"{count:,} over {group or '?'}" for group, count in often.items())
    size = amount(sum(each.bytes or 0 for each in found), "B")
    if any(each.bytes is None for each in found):
        size += " and what is not known"
    return {
        "about": f"{counted(len(found), 'collective')}, {size}: {over}",
        "groups": list(often),
        "rows": [_row(each) for each in found[:MOST_COLLECTIVES]],
        "more": max(0, len(found) - MOST_COLLECTIVES),
    }


def _row(each: Collective) -> Data:
    return {
        "graph": each.graph,
        "kind": each.kind,
        "group": each.group,
        "bytes": format_bytes(each),
        "tensor": format_tensor(each),
        "module": each.module,
        "line": str(each.source or ""),
        "code": each.source.code.strip() if each.source else "",
        "wait": format_wait(each),
        "exposed": each.exposed,
    }


MOST_LISTS = 8
"""How many lists of modules are compared at most."""
MOST_MODULES = 24
"""How many modules are listed at most: each capture of a run has its table in the page."""


def blocks_data(graphs: Sequence[Graph]) -> list[Data]:
    """The kinds of blocks in each list of modules with blocks that are alike."""
    from ...graph.blocks import kinds_of, lists_of

    forward = [graph for graph in graphs if graph.kind != "backward"]
    listed = []
    for glob in lists_of(forward)[:MOST_LISTS]:
        kinds = kinds_of(forward, glob, explained=False)
        if len(kinds[0].members) > 1:
            rows = [[len(kind.members), abridged(kind.members)] for kind in kinds[:MOST_MODULES]]
            listed.append({"glob": glob, "count": len(kinds), "kinds": rows})
    return listed


def cost_data(
    graphs: Sequence[Graph],
    by_module: Callable[[int | None], Mapping[str, Cost]],
    recomputed: Sequence[Recomputed] = (),
) -> Data | None:
    """What the graphs of a capture cost, the modules as deep as there is room.

    Args:
        graphs: its program.
        by_module: its method of this name.
        recomputed: what its backward computes again.

    Returns:
        the table, or None where the cost is not known: of graphs of torch functions, where a size
        is a symbol, and where torch, whose formulas count FLOPs, was not imported by the test.
    """
    if not graphs or "torch" not in sys.modules:
        return None
    from ...graph.cost.table import cost_table

    try:
        table = cost_table(graphs, by_module(None), None, recomputed)
        rows = every = table.rows
        depth = max(row.module.count(".") for row in every)
        while len(rows) > MOST_MODULES and depth:
            table = cost_table(graphs, by_module(depth), depth, recomputed)
            rows = table.rows
            depth -= 1
    except CaptureError:
        return None
    whole = every[0]
    about = [amount(whole.total, "FLOP")]
    if whole.recomputed:
        about.append(f"{amount(whole.recomputed, 'FLOP')} recomputed")
    if whole.saved_bytes is not None:
        about.append(f"{amount(whole.saved_bytes, 'B')} kept for the backward")
    titles = [title for title, _ in table.figures]
    columns = zip(*(figures for _, figures in table.figures), strict=True)
    listed = [
        [row.module, row.nesting, *figures]
        for row, figures in zip(rows[:MOST_MODULES], columns, strict=False)
    ]
    return _table(about, titles, listed, len(every), table.note)


def changed_cost_data(before: Sequence[Graph], after: Sequence[Graph]) -> Data | None:
    """What the modules that cost another amount cost before and after; None as in `cost_data`."""
    if "torch" not in sys.modules:
        return None
    from ...graph.cost.table import changed_costs

    try:
        pairs, note = changed_costs(before, after)
    except CaptureError:
        return None
    old, new = pairs[0]
    about = [amount(new.total - old.total, "FLOP", signed=True)]
    titles = ["FLOPs before", "FLOPs after"]
    if old.saved_bytes is not None and new.saved_bytes is not None:
        kept = new.saved_bytes - old.saved_bytes
        about.append(f"{amount(kept, 'B', signed=True)} kept for the backward")
        titles += ["saved bytes before", "saved bytes after"]
    listed = []
    for old, new in pairs[:MOST_MODULES]:
        figures = [old.total, new.total, old.saved_bytes, new.saved_bytes]
        listed.append([new.module, int(new.module != ""), *figures[: len(titles)]])
    return _table(about, titles, listed, len(pairs), note)


def _table(
    about: list[str], titles: list[str], rows: list[list[Any]], count: int, note: str
) -> Data:
    if note:
        about[0] += " and what is not counted"
    more = count - len(rows)
    return {
        "about": ", ".join(about),
        "titles": titles,
        "rows": rows,
        "more": more,
        "note": note,
    }
