"""What of the drawing of a difference each side has: the old graph, before, and the new one, after.

Both are laid out together, so that each can be shown alone with everything at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...graph.model import Node
from ..look.labels import MAX_LINE, clean, cut

OnlySide = Literal["", "before", "after"]
"""The side that alone has something; "" where both have it."""


@dataclass
class Side:
    """One side.

    Attributes:
        without: the `id`s of the boxes, edges and clusters that it has not.
        labels: the lines of the label that an element has on it, by `id`, where they are others
            than those that are drawn; as many as these.
        edges: those that it has and that are not drawn, each as the `id`s of two boxes.
        boxes: of the old graph, the `id` of the box that shows each op.
    """

    without: dict[str, None] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    boxes: dict[Node, str] = field(default_factory=dict)


@dataclass
class Sides:
    """Both sides; of a drawing of one graph nothing is in them."""

    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)

    def __bool__(self) -> bool:
        return any(side.without or side.labels for side in (self.before, self.after))

    def only(self, element: str, side: OnlySide) -> None:
        """Note that one side alone has an element."""
        if side:
            other = self.after if side == "before" else self.before
            other.without[element] = None

    def label(
        self, element: str, before: Sequence[str], after: Sequence[str], limit: int = MAX_LINE
    ) -> None:
        """Note the lines of the label of an element on both sides, where these differ.

        Args:
            element: the `id` of the element.
            before, after: the lines, as plain text.
            limit: characters of a line that are shown.
        """
        shown = [[cut(clean(line), limit) for line in lines] for lines in (before, after)]
        if shown[0] != shown[1]:
            self.before.labels[element], self.after.labels[element] = shown

    def edge(self, element: str, *boxes: str) -> None:
        """A side that has not one of the boxes at its ends has not an edge."""
        for side in (self.before, self.after):
            if any(box in side.without for box in boxes):
                side.without[element] = None

    def cluster(self, element: str, boxes: Iterable[str]) -> None:
        """A side that has none of the boxes in it has not a cluster."""
        boxes = list(boxes)
        for side in (self.before, self.after):
            if all(box in side.without for box in boxes):
                side.without[element] = None
