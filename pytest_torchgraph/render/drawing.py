"""A drawing with the meaning of its elements, so that a page can lead from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from .layout.scene import Element, Scene
from .layout.sides import Sides

if TYPE_CHECKING:
    import graphviz


@dataclass(frozen=True)
class Drawing:
    """A finished drawing, not yet laid out by Graphviz.

    `output.rendering` turns its DOT into a file. A `Scene` is the same before it is DOT.

    Attributes:
        digraph: the drawing as DOT.
        elements: the meaning of each box and each cluster, by the `id` that it has in the SVG.
        sides: of a difference, what of the SVG each of its sides has.
    """

    digraph: graphviz.Digraph
    elements: Mapping[str, Element]
    sides: Sides = field(default_factory=Sides)

    @classmethod
    def of(cls, scene: Scene) -> Drawing:
        """The drawing of a scene, which is complete."""
        return cls(scene.digraph(), dict(scene.elements), scene.sides)

    def id_of(self, graph: str, node: str, *, is_old: bool = False) -> str | None:
        """The `id` of the box that shows a node, alone or with others; None where none does.

        Args:
            graph: name of the graph, or `old -> new` where the graphs of a `Change` have two names.
            node: name of the node; a parameter or a projection is shown in its user's box, a value
                saved for the backward that is read as a port.
            is_old: whether the node is one that only the old graph of a difference has.
        """
        for name in (graph, graph.rpartition(" -> ")[2]):
            for old in (is_old, None):
                box = self._boxes.get((name, node, old))
                if box is not None:
                    return box
        return None

    @cached_property
    def _boxes(self) -> dict[tuple[str, str, bool | None], str]:
        """The boxes by graph, node and `is_old`, which is None for groups and ports.

        A group may have nodes of both graphs. A port counts only for a node without a box.
        """
        boxes: dict[tuple[str, str, bool | None], str] = {}
        for key, element in self.elements.items():
            if element.kind in ("node", "group"):
                old = element.is_old if element.kind == "node" else None
                for node in element.nodes:
                    boxes.setdefault((element.graph, node, old), key)
        for key, element in self.elements.items():
            if element.kind == "port":
                for node in element.nodes:
                    boxes.setdefault((element.graph, node, None), key)
        return boxes
