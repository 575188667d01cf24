"""Signs and labels of changed nodes. A sign tells kinds of change apart without colours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...graph.model import Node
from ...graph.text import format_node
from . import labels

ChangeMarkKind = Literal["added", "removed", "changed", "rewired", "surplus"]
"""The kinds of `graph.diff.findings.Change`, and "surplus" for an unexpected op."""

SIGNS: dict[str, str] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "rewired": "\N{CLOCKWISE TOP SEMICIRCLE ARROW}",
    "surplus": "!",
}
"""Sign before the first line of a box with a change mark, keyed by the kind of the mark."""
BREAK_SIGN = "\N{BLACK SCISSORS}"
"""Sign of a graph break."""
ARROW = "\N{RIGHTWARDS ARROW}"
"""Separator between the old and the new text."""


class ComparedLine(NamedTuple):
    """A line of a label that compares two graphs.

    Attributes:
        text: the drawn line.
        before, after: the line if only the old, or only the new, graph is shown; "" for no line.
    """

    text: str
    before: str
    after: str

    @classmethod
    def same(cls, text: str) -> ComparedLine:
        """Return a line that both graphs share."""
        return cls(text, text, text)

    @classmethod
    def only(cls, kind: Literal["added", "removed"], text: str) -> ComparedLine:
        """Return a line of only one graph, prefixed with its sign."""
        signed = f"{SIGNS[kind]} {text}"
        return cls(signed, "", signed) if kind == "added" else cls(signed, signed, "")

    @classmethod
    def changed(cls, before: str, after: str, head: str = "") -> ComparedLine:
        """Return a line with the old and the new text after a common prefix."""
        return cls(f"{head}{before} {ARROW} {after}", f"{head}{before}", f"{head}{after}")


@dataclass(slots=True)
class ChangeMark:
    """The change of a drawable's node, which determines the sign and the paint of its box.

    Attributes:
        kind: kind of change; "surplus" for an unexpected op.
        before, after: node in the old and in the new graph; `None` if a graph does not have it.
        lines: changes of the nodes folded into the box.
        follows: True if the change is a consequence of an edit elsewhere.
        times: number of places with the same change. The box shows the first place.
    """

    kind: ChangeMarkKind
    before: Node | None
    after: Node | None
    lines: list[ComparedLine] = field(default_factory=list)
    follows: bool = False
    times: int = 1


MAX_OPERANDS = 2
"""Maximum number of changed operands listed for a rewired node, with up to two lines each."""
CONTEXT_CHARACTERS = 6
"""Number of equal characters kept on each side of a difference between two texts."""


def change_lines(mark: ChangeMark, node: Node) -> list[ComparedLine]:
    """Return the label lines of a box with a change mark.

    Args:
        mark: the change. The mark of an added or removed node has one node. If only folded nodes
            differ, the mark has no node.
        node: node of the box. The lines describe it unless the mark has both nodes.
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
    """Return the user's source line of a node as a list of one line, empty if unknown."""
    return [] if node.source is None else [str(node.source)]


def _compared(before: Node, after: Node) -> Iterator[ComparedLine]:
    """Yield lines for the op, and for the target, the constants and the result if they differ.

    If all four are equal, the lines show the differing parts of the nodes' texts.
    """
    old_op, new_op = labels.node_lines(before)[0], labels.node_lines(after)[0]
    is_shown = old_op != new_op
    yield ComparedLine.changed(old_op, new_op) if is_shown else ComparedLine.same(new_op)
    for label in (lambda node: node.target, labels.constants_label, labels.value_label):
        old, new = label(before), label(after)
        if old != new:
            is_shown = True
            yield from _both(old, new)
        elif label is labels.constants_label and new:
            yield ComparedLine.same(new)
    if not is_shown:
        old, new = format_node(before), format_node(after)
        if before.refs == after.refs and old != new:
            yield from _both(*differing(old, new))


def _both(old: str, new: str) -> Iterator[ComparedLine]:
    """Yield the old and the new text in one line, or in two lines if one line is too short."""
    old, new = old or "nothing", new or "nothing"
    if len(old) + len(new) + 3 <= labels.MAX_LINE:
        yield ComparedLine.changed(old, new)
    else:
        yield ComparedLine(old, old, new)
        yield ComparedLine(f"{ARROW} {new}", "", "")


def differing(old: str, new: str) -> tuple[str, str]:
    """Return the differing parts of two texts, with a few characters of context."""
    shortest = min(len(old), len(new))
    start = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    end = next((i for i in range(shortest - start) if old[-1 - i] != new[-1 - i]), shortest - start)
    start = max(0, start - CONTEXT_CHARACTERS)
    end = max(0, end - CONTEXT_CHARACTERS)
    return old[start : len(old) - end], new[start : len(new) - end]


def _operands(before: Node, after: Node) -> Iterator[ComparedLine]:
    """Yield the name of each replaced operand with the name of the new operand."""
    pairs = [(old, new) for old, new in zip(before.refs, after.refs, strict=False) if old != new]
    for old, new in pairs[:MAX_OPERANDS]:
        yield from _both(old, new)
