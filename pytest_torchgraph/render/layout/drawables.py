"""What a kind of drawing puts on a canvas: nodes that can have a box, their looks, and edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...graph.model import Node
from ..look.change_marks import ChangeMark
from .fold import FoldedNode
from .scene import ClusterPath
from .sides import OnlySide


class Look(NamedTuple):
    """The label and the style of the box of one drawable, chosen by the kind of drawing.

    Attributes:
        lines: the lines of the label, as plain text.
        attributes: DOT attributes, colours among them.
        classes: names of CSS classes, without `tg-`.
        sides: the lines before and after, in the drawing of a difference, where they are others.
    """

    lines: list[str]
    attributes: dict[str, str]
    classes: tuple[str, ...] = ()
    sides: tuple[list[str], list[str]] | None = None


@dataclass(slots=True)
class Drawable:
    """A node on a canvas, with the nodes folded into it: what can have a box of its own.

    `Canvas.draw` gives it a box, which looks as its `Look` says, or folds it into a group.

    Attributes:
        graph: name of the graph.
        folded: the node and what is folded into it.
        cluster: the cluster that it belongs into.
        mark: how it differs, in drawings of differences and of surplus ops; None where it does not.
        only: the side of a difference that alone has it.
        no_box: whether it has no box and is drawn at its users alone, as a port.
        notes: facts that a group counts over its members, such as "saved for backward".
        lines: lines of its label beyond those that the node itself gives.
    """

    graph: str
    folded: FoldedNode
    cluster: ClusterPath
    mark: ChangeMark | None = None
    only: OnlySide = ""
    no_box: bool = False
    notes: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)

    @property
    def node(self) -> Node:
        """The node."""
        return self.folded.node

    @property
    def is_old(self) -> bool:
        """Whether only the old graph of a difference has it."""
        return self.only == "before"

    @property
    def computed(self) -> list[Node]:
        """The node, and the projections that are folded into it."""
        return [self.folded.node, *self.folded.projections]


class Edge(NamedTuple):
    """An edge between drawables.

    Attributes:
        tail, head: the drawables, by number.
        value: which of the results of the tail it is, one index for each nested projection.
        label: the label, as plain text.
        kind: "value", "added", "removed", "changed", "order" (one must run before the other),
            "body" (a call and what it calls) or "cut" (what a graph break interrupts).
        sides: of a changed edge, the labels before and after.
        only: the side of a difference that alone has it.
    """

    tail: int
    head: int
    value: tuple[int, ...] = ()
    label: str = ""
    kind: str = "value"
    sides: tuple[str, str] | None = None
    only: OnlySide = ""
