"""What a changed node's box says: a sign, and what it was before where it was anything."""

from __future__ import annotations

from collections.abc import Iterator

from ...graph.model import Node
from ...graph.text import format_node
from . import labels
from .change_marks import SIGNS, Mark

ARROW = "\N{RIGHTWARDS ARROW}"
MAX_OPERANDS = 2
WINDOW = 6


def change_lines(mark: Mark, node: Node) -> list[str]:
    """The lines of a changed box; `node` is the one that the box stands for."""
    before, after = mark.before, mark.after
    if before is None or after is None:
        lines = labels.node_lines(node)
        lines[0] = f"{SIGNS[mark.kind]} {lines[0]}"
    else:
        lines = list(_compared(before, after))
        lines[0] = f"{SIGNS[mark.kind]} {lines[0]}"
        if mark.kind == "rewired":
            lines += _operands(before, after)
    lines += [f"{SIGNS[kind]} {text}" for kind, text in mark.lines]
    return lines


def source_line(node: Node) -> list[str]:
    """Where in the user's code the node comes from, one line or none."""
    return [] if node.source is None else [str(node.source)]


def _compared(before: Node, after: Node) -> Iterator[str]:
    op = labels.node_lines(after)[0]
    was = labels.node_lines(before)[0]
    shown = op != was
    yield op if op == was else f"{was} {ARROW} {op}"
    for label in (lambda node: node.target, labels.constants_label, labels.value_label):
        old, new = label(before), label(after)
        if old != new:
            shown = True
            yield from _both(old, new)
        elif label is labels.constants_label and new:
            yield new
    if not shown:
        old, new = format_node(before), format_node(after)
        if before.refs == after.refs and old != new:
            yield from _both(*differing(old, new))


def _both(old: str, new: str) -> Iterator[str]:
    old, new = old or "nothing", new or "nothing"
    if len(old) + len(new) + 3 <= labels.MAX_LINE:
        yield f"{old} {ARROW} {new}"
    else:
        yield old
        yield f"{ARROW} {new}"


def differing(old: str, new: str) -> tuple[str, str]:
    """The parts of two texts in which they differ, with a few characters around them."""
    shortest = min(len(old), len(new))
    start = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    end = next((i for i in range(shortest - start) if old[-1 - i] != new[-1 - i]), shortest - start)
    start = max(0, start - WINDOW)
    end = max(0, end - WINDOW)
    return old[start : len(old) - end], new[start : len(new) - end]


def _operands(before: Node, after: Node) -> Iterator[str]:
    """The operands that are others now."""
    pairs = [(old, new) for old, new in zip(before.refs, after.refs, strict=False) if old != new]
    for old, new in pairs[:MAX_OPERANDS]:
        yield from _both(old, new)
