"""Changes of nodes as they are drawn: signs, colours and labels.

Each kind has a sign as well as a paint, and people with any of the usual colour vision deficiencies
can tell the paints apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...graph.model import Node
from ...graph.text.format import format_node
from . import labels
from .colours import Paint

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


MAX_OPERANDS = 2
"""How many changed operands of a rewired node are listed; each takes up to two lines of the box."""
CONTEXT_CHARACTERS = 6
"""How many equal characters are kept on each side of the part in which two texts differ."""


def change_lines(mark: ChangeMark, node: Node) -> list[ComparedLine]:
    """The lines of the label of a box with a change mark.

    Args:
        mark: the change.
        node: the node of the box, which is described where the mark has not both nodes: it has one
            for an added or removed node, none where only what is folded into the box differs.
    """
    before, after = mark.before, mark.after
    if before is None or after is None:
        lines = [ComparedLine.same(line) for line in labels.node_lines(node)]
    else:
        lines = list(_compared(before, after))
        if mark.kind == "rewired":
            lines += _operands(before, after)
    times = f" {labels.TIMES} {mark.times:,}" if mark.times > 1 else ""
    first = ComparedLine(*(f"{SIGNS[mark.kind]} {text}{times}" for text in lines[0]))
    return [first, *lines[1:], *mark.lines]


def source_line(node: Node) -> list[str]:
    """The line of the user's code that made the node, in a list of one, or of none if unknown."""
    return [] if node.source is None else [str(node.source)]


def _compared(before: Node, after: Node) -> Iterator[ComparedLine]:
    """The op, and what of the node differs: its target, constants, result, or else its text."""
    old_op, new_op = labels.node_lines(before)[0], labels.node_lines(after)[0]
    shown = old_op != new_op
    yield ComparedLine.changed(old_op, new_op) if shown else ComparedLine.same(new_op)
    for label in (lambda node: node.target, labels.constants_label, labels.value_label):
        old, new = label(before), label(after)
        if old != new:
            shown = True
            yield from _both(old, new)
        elif label is labels.constants_label and new:
            yield ComparedLine.same(new)
    if not shown:
        old, new = format_node(before), format_node(after)
        if before.refs == after.refs and old != new:
            yield from _both(*differing(old, new))


def _both(old: str, new: str) -> Iterator[ComparedLine]:
    """Both texts in one line, or in two where they do not fit."""
    old, new = old or "nothing", new or "nothing"
    if len(old) + len(new) + 3 <= labels.MAX_LINE:
        yield ComparedLine.changed(old, new)
    else:
        yield ComparedLine(old, old, new)
        yield ComparedLine(f"{ARROW} {new}", "", "")


def differing(old: str, new: str) -> tuple[str, str]:
    """The parts of two texts in which they differ, with a few characters around them."""
    shortest = min(len(old), len(new))
    start = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    end = next((i for i in range(shortest - start) if old[-1 - i] != new[-1 - i]), shortest - start)
    start = max(0, start - CONTEXT_CHARACTERS)
    end = max(0, end - CONTEXT_CHARACTERS)
    return old[start : len(old) - end], new[start : len(new) - end]


def _operands(before: Node, after: Node) -> Iterator[ComparedLine]:
    """The names of operands that were replaced, with those of the new ones."""
    pairs = [(old, new) for old, new in zip(before.refs, after.refs, strict=False) if old != new]
    for old, new in pairs[:MAX_OPERANDS]:
        yield from _both(old, new)
