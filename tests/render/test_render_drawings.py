"""Drawings of graphs and of differences, in examples: their boxes, edges and clusters."""

from __future__ import annotations

from pathlib import Path

from graph.examples import Example, examples

from pytest_torchgraph.graph import diff_graphs
from pytest_torchgraph.render import (
    CATEGORY_PAINTS,
    CHANGE_PAINTS,
    HEAT_PAINTS,
    diff_to_dot,
    program,
    to_dot,
)


@examples(Path(__file__).parent / "drawings")
def test_drawing_has_the_boxes_and_edges_of_the_example(laid_out, example: Example) -> None:
    before, after = example.graphs()
    (heading,) = example.expected
    options = dict(option.split("=") for option in heading.split()[1:])
    options = {key: int(v) if v.isdecimal() else v for key, v in options.items()}
    paints = HEAT_PAINTS if "heat" in options else CATEGORY_PAINTS
    if before != after or example.patch.count("\n-"):
        digraph, paints = diff_to_dot(diff_graphs(before, after), **options), CHANGE_PAINTS
    elif len(before) == 1:
        digraph = to_dot(before[0], **options)
    else:
        digraph = program.drawing(before, **options).digraph
    example.check({heading: "\n".join(lines(laid_out(digraph), paints))})


def lines(drawn, paints):
    """Yield what a drawing shows, each label on one line."""
    objects = {item["_gvid"]: item for item in drawn.get("objects", ())}
    texts = {key: text_of(item) for key, item in objects.items()}
    yield drawn["label"].replace("\\n", " | ")
    for key, item in objects.items():
        if not item["name"].startswith(("cluster", "legend")):
            yield f"[{texts[key]}] {looks(item, paints)}".rstrip()
    for edge in drawn.get("edges", ()):
        if edge.get("style") != "invis":
            tail, head = (texts[edge[end]].split(" | ")[0] for end in ("tail", "head"))
            shown = f"{text_of(edge).strip()} {looks(edge, paints)}".strip()
            yield f"{tail} -> {head}: {shown}".removesuffix(": ").rstrip()
    for key, item in objects.items():
        if item["name"].startswith("cluster"):
            inside = [texts[node].split(" | ")[0] for node in item.get("nodes", ())]
            yield f"({texts[key]}) {', '.join(inside)}"


def text_of(item) -> str:
    return " | ".join(op["text"] for op in item.get("_ldraw_", ()) if op["op"] == "T")


def looks(item, paints) -> str:
    """Return the name of an item's colours, and how it is dashed or doubled."""
    border, fill = (item.get(key, "").lower() for key in ("color", "fillcolor"))
    names = [name for name, paint in paints.items() if paint.border.lower() == border]
    same = [name for name in names if paints[name].fill.lower() == fill] or [
        f"pale {name}" if fill else name for name in names
    ]
    marks = [mark for mark in ("dashed", "dotted") if mark in item.get("style", "")]
    return ", ".join([*same[:1], *marks, *["double"] * (item.get("peripheries") == "2")])
