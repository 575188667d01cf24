"""Pages of made-up tests with real differences of real graphs."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pytest_torchgraph import Graph
from pytest_torchgraph.graph import diff_graphs
from pytest_torchgraph.render import draw
from pytest_torchgraph.render.difference import drawing as drawing_of
from pytest_torchgraph.report.page import collect
from pytest_torchgraph.report.page.html import DETAILS, FORMAT, Parts, search_text, summary
from pytest_torchgraph.report.page.html import page as html_of
from pytest_torchgraph.snapshot import program_of

LAYER = """\
  %layers.{n}.weight = parameter : f32[8, 8]
  %layers.{n}/t = aten.t.default(%layers.{n}.weight) : f32[8, 8]
  %layers.{n}/mm = aten.mm.default({x}, %layers.{n}/t) : f32[2, 8]
  %layers.{n}/{act} = aten.{act}.default(%layers.{n}/mm) : f32[2, 8]
"""


def trained(changed: int = -1, added: int = -1, removed: int = -1) -> Graph:
    """Return six layers and a loss. The products of the first three are saved for backward.

    `dead` has no user. `mean` is used only by `write`, which changes the input.

    Args:
        changed, added, removed: the layers in which the activation is relu instead of gelu, is
            followed by a clone, or has lost its dropout.
    """
    lines, x = ["torchgraph 2\n\nforward @ aot {\n  %x = input : f32[2, 8]\n"], "%x"
    for n in range(6):
        act = "relu" if n == changed else "gelu"
        lines.append(LAYER.format(n=n, x=x, act=act))
        x = f"%layers.{n}/{act}"
        for layer, op in ((added, "clone"), (removed, "dropout")):
            if n == layer:
                lines.append(f"  %layers.{n}/{op} = aten.{op}.default({x}) : f32[2, 8]\n")
                x = f"%layers.{n}/{op}"
    kept = "".join(f"  save %layers.{n}/mm\n" for n in range(3))
    dead = "  %dead = aten.neg.default(%layers.0/mm) : f32[2, 8]\n"
    dead += "  %mean = aten.neg.default(%layers.1/mm) : f32[2, 8]\n"
    dead += "  %write = aten.copy_.default(%x, %mean) : f32[2, 8] !mutates %x\n"
    loss = f"{dead}  %loss = aten.sum.default({x}) : f32[]\n  return %loss\n"
    return Graph.from_text("".join([*lines, loss, kept, "}\n"]))


def network(layers: int, changed: int = -1) -> Graph:
    lines, x = ["torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2, 8]\n"], "%x"
    for n in range(layers):
        act = "relu" if n == changed else "gelu"
        lines.append(LAYER.format(n=n, x=x, act=act))
        x = f"%layers.{n}/{act}"
    return Graph.from_text("".join([*lines, f"  return {x}\n}}\n"]))


def one_test(name: str, outcome: str = "passed", **parts: Any) -> dict[str, Any]:
    found = {"id": name, "outcome": outcome, "seconds": 0.1, "message": "", "where": "test_a.py:1"}
    return {**found, "captures": [], "ranks": [], "differences": [], "pictures": [], **parts}


def difference(before: Graph, after: Graph, directory: Path, ranks: str = "") -> dict[str, Any]:
    diff = diff_graphs((before,), (after,))
    drawing = drawing_of(diff)
    drawn = draw(drawing.digraph, directory / "difference.svg")
    assert drawn.renderer is not None, drawn.note
    texts = [
        program_of(graph).to_text("dataflow", fold=False).splitlines() for graph in (before, after)
    ]
    return collect.comparison_data(
        file="__snapshots__/test_a/test_step.tgraph",
        headline=diff.heading(),
        accept="pytest test_a.py::test_step --torchgraph-update",
        lines=difflib.unified_diff(*texts, "stored", "now", lineterm=""),
        diff=diff,
        drawing=drawing,
        svg=drawn.path.read_text(),
        note=drawn.note or "",
        ranks=ranks,
    )


def written(
    directory: Path, *tests: dict[str, Any], parts: Parts | None = None, **more: Any
) -> Path:
    path = directory / "page.html"
    parts = parts or Parts()
    texts = [search_text(test) for test in tests]
    data = {
        "format": FORMAT,
        "about": "pytest",
        "warning": "",
        "tests": [summary(test, parts.add({key: test[key] for key in DETAILS})) for test in tests],
        "search": parts.add(texts),
        **more,
    }
    path.write_text(html_of(data, parts.texts), encoding="utf-8")
    return path


def view_box(page: Any) -> list[float]:
    view = page.evaluate(
        "document.querySelector('.view').shadowRoot.querySelector('svg').getAttribute('viewBox')"
    )
    return [float(number) for number in view.split()]


def settled(page: Any) -> Any:
    """Wait until the selection is read and shown, and return the page."""
    page.wait_for_function("loading.then(() => document.body.dataset.ready !== undefined)")
    return page
