"""Parts of a drawing of a difference that belong to the old and to the new graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from graph.build import graph
from graph.examples import Example, examples

from pytest_torchgraph.graph import Graph, diff_graphs
from pytest_torchgraph.render import Drawing
from pytest_torchgraph.render.difference import drawing as drawing_of
from pytest_torchgraph.render.dot import Side


def shown(drawing: Drawing, side: Side) -> Iterator[str]:
    """Yield the label of each box and cluster of a side, and its edges."""
    names: dict[str, str] = {}
    for line in drawing.digraph.body:
        found = re.search(r"\bid=\"?([\w-]+)", line)
        if found is None or "style=invis" in line:
            continue
        label = re.search(r'label="?(.*?)(?:"|\s\w+=|$)', line)
        drawn = label[1].strip().split("\\n") if label else []
        text = " | ".join(side.labels.get(found[1], drawn))
        if edge := re.match(r"\s*(\w+) -> (\w+)", line):
            text = f"{names[edge[1]]} -> {names[edge[2]]}: {text}"
        elif box := re.match(r"\s*(n\d+) \[", line):
            names[box[1]] = names[found[1]] = text.split(" | ")[0]
        if found[1] not in side.without:
            yield text.removesuffix(": ")
    for tail, head in side.edges:
        yield f"{names[tail]} -> {names[head]}, not drawn"


def drawn(before: Graph, after: Graph) -> Drawing:
    return drawing_of(diff_graphs((before,), (after,)))


@examples(Path(__file__).parent / "sides")
def test_sides_of_a_drawing_are_as_in_the_example(example: Example) -> None:
    (before,), (after,) = example.graphs()
    drawing = drawn(before, after)
    assert not drawn(before, before).sides
    sides = {"before": drawing.sides.before, "after": drawing.sides.after}
    for side in sides.values():
        for key, label in side.labels.items():  # lines are replaced, and none is added
            line = next(line for line in drawing.digraph.body if f'"{key}"' in line)
            assert line.partition(" tooltip=")[0].count("\\n") + 1 == len(label)
    example.check({key: "\n".join(shown(drawing, side)) for key, side in sides.items()})


def test_module_has_its_class_of_each_side() -> None:
    old, new = (graph(f'%a = aten.{op}(%x) in "act"\nreturn %a') for op in ("gelu", "relu"))
    old = replace(old, classes={"act": "GELU"})
    new = replace(new, classes={"act": "ReLU"})
    drawing = drawn(old, new)
    (act,) = (key for key, element in drawing.elements.items() if element.label == "act")
    assert drawing.sides.before.labels[act] == ["act · GELU"]
    assert drawing.sides.after.labels[act] == ["act · ReLU"]

    stored = drawn(replace(old, classes={}), new)  # without the old class
    assert stored.sides.before.labels[act] == ["act"]
