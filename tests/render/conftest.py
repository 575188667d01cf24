"""What a drawing shows, asked of the real `dot`: texts after all escapes, boxes in clusters."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import graphviz


@dataclass
class Seen:
    """A drawing as it was laid out.

    Attributes:
        boxes: the attributes of each box, by the text that it shows.
        edges: (text of the tail, text of the head) and the attributes of each visible edge.
        clusters: the texts of the boxes in each cluster, by its label.
    """

    boxes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    count: int = 0

    def box(self, start: str) -> dict[str, Any]:
        """The one box whose first line is this, or else whose text begins like this."""
        exact = [text for text in self.boxes if text.split("\n")[0] == start]
        found = exact or [text for text in self.boxes if text.startswith(start)]
        assert len(found) == 1, f"{start!r}: {found} among {sorted(self.boxes)}"
        return self.boxes[found[0]]

    def edge(self, tail: str, head: str) -> dict[str, Any]:
        """The one edge between boxes whose texts begin like this."""
        found = [e for a, b, e in self.edges if a.startswith(tail) and b.startswith(head)]
        assert len(found) == 1, f"{tail} -> {head}: {len(found)} edges in {self.edges}"
        return found[0]

    def has_edge(self, tail: str, head: str) -> bool:
        """Whether there is an edge between boxes whose texts begin like this."""
        return any(a.startswith(tail) and b.startswith(head) for a, b, _ in self.edges)


def _texts(thing: dict[str, Any]) -> str:
    return "\n".join(op["text"] for op in thing.get("_ldraw_", ()) if op["op"] == "T")


@pytest.fixture
def look() -> Callable[[graphviz.Digraph], Seen]:
    """Lay a drawing out with `dot` and say what is to be seen."""
    if shutil.which("dot") is None:
        pytest.skip("Graphviz's `dot` is not on the PATH")

    def look(digraph: graphviz.Digraph) -> Seen:
        done = subprocess.run(
            ["dot", "-Tjson"],
            input=digraph.source.encode(),
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert not done.stderr, done.stderr
        drawn = json.loads(done.stdout)
        seen = Seen()
        names = {}
        for thing in drawn.get("objects", ()):
            text = _texts(thing)
            if thing["name"].startswith("cluster"):
                seen.clusters[text] = set(thing.get("nodes", ()))
            else:
                seen.count += 1
                names[thing["_gvid"]] = text
                seen.boxes[text] = thing
        for label, members in seen.clusters.items():
            seen.clusters[label] = {names[member] for member in members}
        for edge in drawn.get("edges", ()):
            if edge.get("style") != "invis":
                edge["text"] = _texts(edge).strip()
                seen.edges.append((names[edge["tail"]], names[edge["head"]], edge))
        return seen

    return look
