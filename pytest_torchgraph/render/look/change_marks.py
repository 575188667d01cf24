"""What can have happened to a node, with the sign and the colours that show it.

Each kind has a sign as well as a colour, and the colours are of those that people with any of the
usual colour vision deficiencies can tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...graph.model import Node
from .op_categories import Paint

MarkKind = Literal["added", "removed", "changed", "rewired", "surplus"]

SIGNS: dict[str, str] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "rewired": "\N{CLOCKWISE TOP SEMICIRCLE ARROW}",
    "surplus": "!",
}
PAINT: dict[str, Paint] = {
    "added": Paint("#009E73", "#A9E8D0"),
    "removed": Paint("#C24E00", "#F0A97B"),
    "changed": Paint("#E69F00", "#FCE29F"),
    "rewired": Paint("#0061A8", "#92BDE3"),
    "surplus": Paint("#C24E00", "#F0A97B"),
}


@dataclass(slots=True)
class Mark:
    """What happened to a node.

    Attributes:
        kind: the kind of change; "surplus" for an op that should not be there.
        before, after: the node in both graphs, None where there is none.
        lines: changes of what was folded into the box, as (kind, text).
        follows: whether this is the consequence of an edit elsewhere.
    """

    kind: MarkKind
    before: Node | None
    after: Node | None
    lines: list[tuple[MarkKind, str]] = field(default_factory=list)
    follows: bool = False
