"""Drawings laid out by Graphviz: texts after all escapes, and boxes in clusters.

The layout uses the Graphviz inside pygraphviz, in this process: it works without `dot`, and a
drawing takes a millisecond. `test_render_rendering.py` tests `dot` itself, and the processes that
draw users' pictures.
"""

from __future__ import annotations

import importlib
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchgraph.render import output

if TYPE_CHECKING:
    import graphviz

SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Seen:
    """A drawing after its layout.

    Attributes:
        boxes: the attributes of each box, by its text.
        edges: (text of the tail, text of the head) and the attributes of each visible edge.
        clusters: the texts of the boxes in each cluster, by its label.
    """

    boxes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    count: int = 0

    def box(self, start: str) -> dict[str, Any]:
        """Return the only box whose first line, or else whose beginning, is this text."""
        exact = [text for text in self.boxes if text.split("\n")[0] == start]
        found = exact or [text for text in self.boxes if text.startswith(start)]
        assert len(found) == 1, f"{start!r}: {found} among {sorted(self.boxes)}"
        return self.boxes[found[0]]

    def edge(self, tail: str, head: str) -> dict[str, Any]:
        """Return the only edge between boxes whose texts begin with these."""
        found = [e for a, b, e in self.edges if a.startswith(tail) and b.startswith(head)]
        assert len(found) == 1, f"{tail} -> {head}: {len(found)} edges in {self.edges}"
        return found[0]

    def has_edge(self, tail: str, head: str) -> bool:
        """Return True if an edge connects boxes whose texts begin with these."""
        return any(a.startswith(tail) and b.startswith(head) for a, b, _ in self.edges)


def _texts(item: dict[str, Any]) -> str:
    return "\n".join(op["text"] for op in item.get("_ldraw_", ()) if op["op"] == "T")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw pictures with pygraphviz in this process instead of a new one, even if `dot` exists.

    Tests are skipped if the wheel does not find the libraries of the system that it needs.
    """
    pytest.importorskip("pygraphviz", exc_type=ImportError)
    command = "pytest_torchgraph.render._pygraphviz"

    def run(arguments: list[str], *_: object) -> str:
        assert arguments[1:3] == ["-m", command]
        importlib.import_module(command).main(arguments[3:])
        return ""

    monkeypatch.setattr(output, "run", run)
    monkeypatch.setattr(output.shutil, "which", lambda name: None)


@pytest.fixture
def laid_out(capfd: pytest.CaptureFixture[str]) -> Callable[[graphviz.Digraph], dict[str, Any]]:
    """Lay a drawing out, and return Graphviz's JSON."""
    pygraphviz = pytest.importorskip("pygraphviz", exc_type=ImportError)

    def laid_out(digraph: graphviz.Digraph) -> dict[str, Any]:
        layout = pygraphviz.AGraph(string=digraph.source, encoding="UTF-8")
        drawn: dict[str, Any] = json.loads(layout.draw(format="json", prog="dot"))
        # Graphviz draws despite most mistakes, so all its output fails. Fontconfig warns too.
        warnings = [
            line for line in capfd.readouterr().err.splitlines() if "Fontconfig" not in line
        ]
        assert not warnings, warnings
        # In the JSON, backslashes of texts are doubled or lost. The SVG has them.
        svg = ET.fromstring(layout.draw(format="svg", prog="dot"))
        shown = {
            group.findtext(f"{SVG}title"): [text.text or "" for text in group.iter(f"{SVG}text")]
            for group in svg.iter(f"{SVG}g")
            if group.get("class", "").startswith(("node", "cluster"))
        }
        for item in drawn.get("objects", ()):
            ops = [op for op in item.get("_ldraw_", ()) if op["op"] == "T"]
            for op, text in zip(ops, shown.get(item["name"], ()), strict=False):
                op["text"] = text.replace("\N{NO-BREAK SPACE}", " ")  # used for indentation
        return drawn

    return laid_out


@pytest.fixture
def look(
    laid_out: Callable[[graphviz.Digraph], dict[str, Any]],
) -> Callable[[graphviz.Digraph], Seen]:
    """Lay a drawing out, and return its visible content."""

    def look(digraph: graphviz.Digraph) -> Seen:
        drawn = laid_out(digraph)
        seen = Seen()
        names = {}
        for item in drawn.get("objects", ()):
            text = _texts(item)
            if item["name"].startswith("cluster"):
                seen.clusters[text] = set(item.get("nodes", ()))
            else:
                seen.count += 1
                names[item["_gvid"]] = text
                seen.boxes[text] = item
        for label, members in seen.clusters.items():
            seen.clusters[label] = {names[member] for member in members}
        for edge in drawn.get("edges", ()):
            if edge.get("style") != "invis":
                edge["text"] = _texts(edge).strip()
                seen.edges.append((names[edge["tail"]], names[edge["head"]], edge))
        return seen

    return look
