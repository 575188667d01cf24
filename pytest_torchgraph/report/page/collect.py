"""Captures and comparisons as plain data for JSON and pytest-xdist.

Each function builds the data of one section of the page. The page's script reads these keys.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import CaptureError
from ...graph.collectives import format_bytes, format_tensor, format_wait
from ...graph.cost import Cost
from ...graph.diff import Change, Finding, GraphDiff, abridged
from ...graph.model import Graph, phase_of
from ...words import amount, counted
from .html import Data
from .nodes import bodies_data, compared_data, pictured_data

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...graph.collectives import Collective
    from ...render.dot import Drawing, Sides
    from ...render.scene import Element
    from .html import Parts


BREAK_FACTS = ("kind", "reason", "file", "line", "code", "occurrences")
"""Attributes of a graph break that the page has under the same name."""


def capture_data(capture: Capture, parts: Parts | None = None) -> Data:
    """Return a capture's data: graphs with op counts, costs, collectives, breaks and recompiles.

    Args:
        capture: the capture.
        parts: store for the nodes of the graphs. If `None`, nodes are left out.
    """
    try:
        graphs = capture.program
        note = "" if graphs else "no graph was compiled"
    except CaptureError as error:  # some graphs are built on first access
        graphs, note = (), str(error)
    return {
        "via": capture.via,
        "rank": capture.rank,
        "note": note,
        "cost": cost_data(graphs, capture.by_module),
        "blocks": blocks_data(graphs),
        "collectives": collectives_data(capture),
        "graphs": [
            {
                "name": graph.name,
                "kind": graph.kind,
                "level": graph.level,
                "count": graph.op_counts.total(),
                "ops": [[op, count] for op, count in graph.op_counts.most_common()],
                # 0 marks a compiled graph: the page and its search say "eager" for any other
                # number.
                "runs": graph.runs if graph.eager else 0,
                "cause": _cause(graph),
                "nodes": parts.add(bodies_data(graph)) if parts is not None else "",
            }
            for graph in graphs
        ],
        "breaks": [
            {
                "hint": graph_break.hint or "",
                **{name: getattr(graph_break, name) for name in BREAK_FACTS},
            }
            for graph_break in _facts(capture, "breaks")
        ],
        "recompiles": [
            {
                "function": recompile.function,
                "file": recompile.file,
                "line": recompile.line,
                "reasons": list(recompile.reasons),
                # Skip the first line: it repeats the function, the place and the reasons.
                "details": str(recompile).splitlines()[1:],
            }
            for recompile in _facts(capture, "recompiles")
        ],
    }


def _cause(graph: Graph) -> Data | None:
    """Return the graph break that caused an eager graph, or `None` if unknown."""
    cause = graph.cause
    if cause is None:
        return None
    return {"kind": cause.kind, "place": f"{cause.file}:{cause.line}", "code": cause.code.strip()}


def _facts(capture: Capture, name: str) -> tuple[Any, ...]:
    """Return an attribute of a capture; () if its mechanism does not record it."""
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
    diff: GraphDiff | None,
    drawing: Drawing | None,
    svg: str = "",
    note: str = "",
    ranks: str = "",
) -> Data:
    """Return the data of a failed comparison, or of one class of ranks of a failed comparison.

    Args:
        file: the stored file, as the user would type it.
        headline: one-line summary of the failure.
        accept: command that stores the captured graphs.
        lines: unified diff of the texts, or the lines of the report's section if there is no diff.
        diff: difference of the graphs, if any.
        drawing: drawing of the difference, for the `id`s of its elements.
        svg: text of the SVG, "" if there is none.
        note: reason why the drawing is missing or incomplete.
        ranks: the ranks compared, as text; "" for a comparison without ranks.
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
        "findings": [_finding(finding, drawing) for finding in findings],
        "graphs": compared_data(diff, drawing) if diff else [],
        "sides": _sides(drawing.sides) if drawing and drawing.sides else None,
    }


def _sides(sides: Sides) -> Data:
    """Return, per side, the missing elements, the differing labels and the additional edges."""
    return {
        name: {
            "without": list(side.without),
            "labels": side.labels,
            "edges": [list(edge) for edge in side.edges],
        }
        for name, side in (("before", sides.before), ("after", sides.after))
    }


def picture_data(
    title: str, graphs: Iterable[Graph], drawing: Drawing | None, svg: str, note: str
) -> Data:
    """Return the data of a drawing of graph breaks or of unexpected ops.

    Args:
        title: one-line summary of the problem.
        graphs: graphs whose nodes the page lists.
        drawing: the drawing, for the `id`s of its elements.
        svg: text of its SVG, "" if there is none.
        note: reason why the drawing is missing or incomplete.
    """
    findings = [
        {"sign": sign, "summary": element.label or ", ".join(element.nodes), "ids": [key]}
        for key, element in (drawing.elements.items() if drawing is not None else ())
        if (sign := _sign(element))
    ]
    return {
        "title": title,
        "svg": svg,
        "note": note,
        "graphs": pictured_data(graphs, drawing),
        "findings": findings,
    }


def _sign(element: Element) -> str:
    """Return the sign of a graph break or a surplus op, "" for any other element."""
    from ...render.labels import BREAK_SIGN
    from ...render.labels import SIGNS as MARK_SIGNS

    if element.kind == "break":
        return BREAK_SIGN
    return MARK_SIGNS["surplus"] if element.change == "surplus" else ""


def _finding(finding: Finding, drawing: Drawing | None) -> Data:
    """Return the data of a finding: its text, and the `id`s of the boxes that show it."""
    head, _, further_lines = finding.to_text().partition("\n")
    sign, _, summary = head.partition(" ")
    return {
        "sign": sign,
        "summary": summary,
        "more": further_lines,
        "ids": _ids(finding.changes, drawing),
        "follows": _ids(finding.consequences, drawing),
    }


def _ids(changes: Iterable[Change], drawing: Drawing | None) -> list[str]:
    """Return the `id`s of the boxes that show the changes, without duplicates."""
    if drawing is None:
        return []
    ids = [
        drawing.id_of(change.graph, change.node.name, is_old=change.after is None)
        for change in changes
    ]
    return [box_id for box_id in dict.fromkeys(ids) if box_id]


MOST_COLLECTIVES = 200
"""Maximum number of collectives listed per capture. The page has one list for every capture."""


def collectives_data(capture: Capture) -> Data | None:
    """Return a capture's collectives, or `None` if there are none or they are not recorded."""
    try:
        collectives = capture.collectives
    except (CaptureError, AssertionError):  # a watch that missed graphs
        return None
    if not collectives:
        return None
    counts_by_group = Counter(collective.group for collective in collectives)
    over = ", ".join(f"{count:,} over {group or '?'}" for group, count in counts_by_group.items())
    size = amount(sum(collective.bytes or 0 for collective in collectives), "B")
    if any(collective.bytes is None for collective in collectives):
        size += " plus unknown sizes"
    return {
        "about": f"{counted(len(collectives), 'collective')}, {size}: {over}",
        "groups": list(counts_by_group),
        "rows": [_row(collective) for collective in collectives[:MOST_COLLECTIVES]],
        "more": max(0, len(collectives) - MOST_COLLECTIVES),
    }


def _row(collective: Collective) -> Data:
    """Return the data of one collective, in the list of `collectives_data`."""
    return {
        "graph": collective.graph,
        "kind": collective.kind,
        "group": collective.group,
        "bytes": format_bytes(collective),
        "tensor": format_tensor(collective),
        "module": collective.module,
        "line": str(collective.source or ""),
        "code": collective.source.code.strip() if collective.source else "",
        "wait": format_wait(collective),
        "exposed": collective.exposed,
    }


MOST_LISTS = 8
"""Maximum number of module lists to compare."""
MOST_MODULES = 24
"""Maximum number of modules listed per capture. The page has one table for every capture."""


def blocks_data(graphs: Sequence[Graph]) -> list[Data]:
    """Return the kinds of blocks of each module list that has several blocks of the same kind."""
    from ...graph.blocks import kinds_of, lists_of

    forward = [graph for graph in graphs if phase_of(graph) == "forward"]
    kinds_of_lists = []
    for glob in lists_of(forward)[:MOST_LISTS]:
        try:
            kinds = kinds_of(graphs, glob, explained=False)
        except CaptureError:  # a body runs ops of several blocks
            continue
        if len(kinds[0].members) > 1:
            rows = [[len(kind.members), abridged(kind.members)] for kind in kinds[:MOST_MODULES]]
            kinds_of_lists.append({"glob": glob, "count": len(kinds), "kinds": rows})
    return kinds_of_lists


def cost_data(
    graphs: Sequence[Graph], by_module: Callable[[int | None], Mapping[str, Cost]]
) -> Data | None:
    """Return the cost of a capture by module, with as much nesting as `MOST_MODULES` rows allow.

    Args:
        graphs: the capture's `program`.
        by_module: the capture's method of this name.

    Returns:
        The table, or `None` if the cost is unknown: the ops are torch functions, a size is
        symbolic, or torch, which has the FLOP formulas, is not imported.
    """
    # The FLOP formulas are torch's. A run that only compares loaded graphs has not imported torch,
    # and the import takes 2.8 s.
    if not graphs or "torch" not in sys.modules:
        return None
    from ...graph.cost import cost_table

    try:
        table = cost_table(graphs, by_module(None))
        # The rows of all depths first: the totals and the number of omitted rows are theirs.
        rows = all_rows = table.rows
        depth = max(row.module.count(".") for row in all_rows)
        while len(rows) > MOST_MODULES and depth:
            table = cost_table(graphs, by_module(depth), depth)
            rows = table.rows
            depth -= 1
    except CaptureError:
        return None
    totals = all_rows[0]  # of the whole model
    totals_text = [amount(totals.total, "FLOP")]
    if totals.recomputed:
        totals_text.append(f"{amount(totals.recomputed, 'FLOP')} recomputed")
    if totals.saved_bytes is not None:
        totals_text.append(f"{amount(totals.saved_bytes, 'B')} saved for backward")
    titles = [title for title, _ in table.figures]
    # The table has its figures by column; `columns` has those of all rows, by row.
    columns = zip(*(figures for _, figures in table.figures), strict=True)
    listed_rows = [
        [row.module, row.nesting, *figures]
        for row, figures in zip(rows[:MOST_MODULES], columns, strict=False)
    ]
    if table.note:
        totals_text[0] += " plus uncounted ops"
    return {
        "about": ", ".join(totals_text),
        "titles": titles,
        "rows": listed_rows,
        "more": len(all_rows) - len(listed_rows),
        "note": table.note,
    }
