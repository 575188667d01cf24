"""Captures and comparisons as plain data: what JSON and pytest-xdist can carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import CaptureError
from ...graph.diff.report import SIGNS, Change, Finding, GraphDiff
from ...graph.model import Graph, Node, Source
from ...graph.text import format_arg, format_op, format_result

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...render.layout.scene import Element
    from ...render.picture import Picture

Data = dict[str, Any]


def capture_data(capture: Capture) -> Data:
    """What the page tells of a capture: graphs with their op counts, breaks, recompiles."""
    try:
        graphs = capture.graphs
        note = "" if graphs else "no graph was compiled"
    except CaptureError as error:  # some are built when they are first read
        graphs, note = (), str(error)
    return {
        "via": capture.via,
        "note": note,
        "graphs": [
            {
                "name": graph.name,
                "kind": graph.kind,
                "level": graph.level,
                "count": sum(len(each.nodes) for each in graph.walk()),
                "ops": [[op, count] for op, count in graph.op_counts.most_common()],
            }
            for graph in graphs
        ],
        "breaks": [
            {
                "kind": found.kind,
                "reason": found.reason,
                "hint": found.hint or "",
                "file": found.file,
                "line": found.line,
                "code": found.code,
                "occurrences": found.occurrences,
            }
            for found in _known(capture, "breaks")
        ],
        "recompiles": [
            {
                "function": found.function,
                "file": found.file,
                "line": found.line,
                "reasons": list(found.reasons),
            }
            for found in _known(capture, "recompiles")
        ],
    }


def _known(capture: Capture, name: str) -> tuple[Any, ...]:
    """What a capture knows of this; nothing where its mechanism cannot know."""
    try:
        found: tuple[Any, ...] = getattr(capture, name)
    except CaptureError:
        return ()
    return found


def difference_data(
    *,
    file: str,
    headline: str,
    accept: str,
    lines: Iterable[str],
    diff: GraphDiff | None = None,
    picture: Picture | None = None,
    svg: str = "",
    note: str = "",
) -> Data:
    """What the page tells of a comparison that failed.

    Args:
        file: the stored file, as the user would type it.
        headline: what is wrong, in one line.
        accept: the command that stores what was captured.
        lines: the difference of the texts, as unified diff.
        diff: the difference of the graphs, where there is one.
        picture: what the elements of the drawing stand for.
        svg: the drawing.
        note: why there is no drawing, or what it lacks.
    """
    findings = diff.findings if diff else ()
    return {
        "file": file,
        "headline": headline,
        "accept": accept,
        "diff": list(lines),
        "svg": svg,
        "note": note,
        "findings": [_finding(each, picture) for each in findings],
        "nodes": _diff_nodes(diff, picture) if diff else [],
    }


def picture_data(
    title: str, graphs: Iterable[Graph], picture: Picture | None, svg: str, note: str
) -> Data:
    """What the page tells of another drawing: a graph break, ops that should not be there."""
    places = _places(picture)
    nodes = [each for graph in graphs for each in _nodes(graph, {}, places, False)]
    marks = [
        {"sign": sign, "summary": element.label or ", ".join(element.nodes), "ids": [key]}
        for key, element in (picture.elements.items() if picture is not None else ())
        for sign in _mark(element)
    ]
    return {"title": title, "svg": svg, "note": note, "nodes": nodes, "findings": marks}


def _mark(element: Element) -> Iterator[str]:
    """The sign of a box that says what is wrong."""
    if element.kind == "break":
        yield "✂"
    elif element.change == "surplus":
        yield "!"


def _finding(finding: Finding, picture: Picture | None) -> Data:
    head, _, more = finding.to_text().partition("\n")
    return {
        "sign": SIGNS[finding.kind],
        "summary": head.removeprefix(f"{SIGNS[finding.kind]} "),
        "more": more,
        "ids": _ids(finding.changes, picture),
        "follows": _ids(finding.consequences, picture),
    }


def _ids(changes: Iterable[Change], picture: Picture | None) -> list[str]:
    """The boxes that show these changes."""
    if picture is None:
        return []
    found = [
        picture.id_of(change.graph, change.node.name, is_old=change.after is None)
        for change in changes
    ]
    return [each for each in dict.fromkeys(found) if each]


def _diff_nodes(diff: GraphDiff, picture: Picture | None) -> list[Data]:
    """The nodes of the new graphs, and those of the old ones that are gone."""
    places = _places(picture)
    found: list[Data] = []
    for pair in diff.graphs:
        signs = {id(node): SIGNS["added"] for node in pair.added}
        signs.update((id(new), SIGNS["changed"]) for _, new in pair.changed)
        signs.update((id(new), SIGNS["rewired"]) for _, new in pair.rewired)
        if pair.after is not None:
            found += _nodes(pair.after, signs, places, False)
        gone = {id(node): SIGNS["removed"] for node in pair.removed}
        if pair.before is not None:
            every = pair.after is None
            found += [
                node for node in _nodes(pair.before, gone, places, True) if every or node["sign"]
            ]
    return found


Places = Mapping[tuple[str, str, bool], list[str]]


def _places(picture: Picture | None) -> Places:
    """The ids of the boxes in which a node is shown, by graph, name and age."""
    places: dict[tuple[str, str, bool], list[str]] = {}
    for key, element in picture.elements.items() if picture is not None else ():
        if element.kind in ("node", "group"):
            for node in element.nodes:
                places.setdefault((element.graph, node, element.is_old), []).append(key)
    return places


def _nodes(graph: Graph, signs: Mapping[int, str], places: Places, is_old: bool) -> list[Data]:
    users: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.refs):
            users.setdefault(name, []).append(node.name)
    return [
        {
            "name": node.name,
            "op": format_op(node.op),
            "module": node.module,
            "result": format_result(node.result) if node.result is not None else "",
            "line": str(node.source) if node.source else "",
            "code": _code(node.source),
            "operands": _operands(node),
            "users": users.get(node.name, []),
            "sign": signs.get(id(node), ""),
            "ids": places.get((graph.name, node.name, is_old), []),
        }
        for node in graph.nodes
    ]


def _code(source: Source | None) -> str:
    return source.code if source else ""


def _operands(node: Node) -> str:
    named = [f"{key}={format_arg(value)}" for key, value in node.kwargs.items()]
    return ", ".join([*map(format_arg, node.args), *named])
