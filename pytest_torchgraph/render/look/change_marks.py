"""The kinds of change of a node, each with a sign and colours.

Each kind has a sign as well as a paint, and people with any of the usual colour vision deficiencies
can tell the paints apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...graph.model import Node
from .op_categories import Paint

ChangeMarkKind = Literal["added", "removed", "changed", "rewired", "surplus"]
"""The kinds of `graph.diff.findings.Change`, and "surplus" for an op that should not be there."""

SIGNS: dict[str, str] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "rewired": "\N{CLOCKWISE TOP SEMICIRCLE ARROW}",
    "surplus": "!",
}
"""The sign before the first line of a box with a change mark, by the kind of the mark."""
BREAK_SIGN = "\N{BLACK SCISSORS}"
"""The sign of a graph break."""
CHANGE_PAINTS: dict[str, Paint] = {
    "added": Paint("#009E73", "#A9E8D0"),
    "removed": Paint("#C24E00", "#F0A97B"),
    "changed": Paint("#E69F00", "#FCE29F"),
    "rewired": Paint("#0061A8", "#92BDE3"),
    "surplus": Paint("#C24E00", "#F0A97B"),
}
"""The paint of a box or an edge with a change mark, by the kind of the mark."""


ARROW = "\N{RIGHTWARDS ARROW}"
"""Stands between what was and what is."""


class ComparedLine(NamedTuple):
    """A line of a label that compares two graphs.

    Attributes:
        text: the line as it is drawn.
        before, after: what of it is true of the old and of the new graph, "" for nothing.
    """

    text: str
    before: str
    after: str

    @classmethod
    def same(cls, text: str) -> ComparedLine:
        """A line that is true of both."""
        return cls(text, text, text)

    @classmethod
    def only(cls, kind: Literal["added", "removed"], text: str) -> ComparedLine:
        """A line, behind its sign, that is true of one of them."""
        signed = f"{SIGNS[kind]} {text}"
        return cls(signed, "", signed) if kind == "added" else cls(signed, signed, "")

    @classmethod
    def changed(cls, before: str, after: str, head: str = "") -> ComparedLine:
        """What was and what is, behind a common beginning."""
        return cls(f"{head}{before} {ARROW} {after}", f"{head}{before}", f"{head}{after}")


@dataclass(slots=True)
class ChangeMark:
    """How the node of a drawable differs; the drawing gives the box its sign and its paint.

    Attributes:
        kind: the kind of change; "surplus" for an op that should not be there.
        before, after: the node in the old and in the new graph, None where there is none.
        lines: changes of what is folded into the box.
        follows: whether the change is a consequence of an edit elsewhere.
        times: in how many places the same change is; the box shows the first one.
    """

    kind: ChangeMarkKind
    before: Node | None
    after: Node | None
    lines: list[ComparedLine] = field(default_factory=list)
    follows: bool = False
    times: int = 1
