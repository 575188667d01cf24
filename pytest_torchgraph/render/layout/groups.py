"""What the box of a group says: what is in it, how many ops, and which effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...graph.model import Node
from ..look import labels
from ..look.change_marks import SIGNS
from .clustering import Unit

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
TIMES = "\N{MULTIPLICATION SIGN}"
MOST_OPS = 4
"""How many different ops are named at most, the most frequent first."""

COUNTED = {"random": "random", "communicates": "collective", "syncs": "wait", "opaque": "opaque"}
"""What the effects of ops are called where they are counted."""


class GroupText(NamedTuple):
    """The texts of a group: what it is called, the lines of its box, those of its tooltip."""

    title: str
    lines: list[str]
    tooltip: list[str]


def group_text(
    nodes: Sequence[Node], unit: Unit, notes: Mapping[str, int], marks: Mapping[str, int]
) -> GroupText:
    """The texts of a group.

    Args:
        nodes: the nodes in it.
        unit: what it is made of.
        notes: what is to be said of how many of its nodes.
        marks: how many of its nodes are marked in which way.
    """
    ops = Counter(labels.op_label(node.op) for node in nodes if node.is_call)
    title = _title(nodes, unit)
    lines = [title, _size(nodes, unit, ops.total())]
    named = [f"{count} {TIMES} {op}" for op, count in ops.most_common(MOST_OPS)]
    if len(ops) > MOST_OPS:
        named[-1] += f", {ELLIPSIS}"
    lines += _packed(named)
    effects = Counter(
        COUNTED[effect.kind] for node in nodes for effect in node.effects if effect.kind in COUNTED
    )
    written = dict.fromkeys(
        effect.target.name
        for node in nodes
        for effect in node.effects
        if effect.kind == "mutates" and effect.target is not None
    )
    if written:
        first = next(iter(written))
        rest = f" and {len(written) - 1} more" if len(written) > 1 else ""
        lines.append(f"mutates {labels.cut(first, 24)}{rest}")
    lines += [f"{count} {what}" for what, count in {**effects, **notes}.items()]
    if marks:
        lines.append(", ".join(f"{SIGNS[kind]} {count} {kind}" for kind, count in marks.items()))
    tooltip = [title, lines[1]]
    tooltip += [f"{count} {TIMES} {op}" for op, count in ops.most_common(12)]
    if len(unit.inside) > 1:
        tooltip += [segment.label for segment in unit.inside[:12]]
        if len(unit.inside) > 12:
            tooltip.append(f"{ELLIPSIS} {len(unit.inside) - 12} more")
    return GroupText(title, lines, tooltip)


def _packed(words: Sequence[str]) -> Iterator[str]:
    """Words in as few lines as they fit into."""
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > labels.MAX_LINE:
            yield line
            line = ""
        line = f"{line}, {word}" if line else word
    if line:
        yield line


def _title(nodes: Sequence[Node], unit: Unit) -> str:
    around = unit.place[-1].label if unit.place and unit.place[-1].kind == "module" else ""
    if len(unit.inside) == 1:
        title = unit.inside[0].label
    elif unit.inside:
        names = [_inside(segment.label, around) for segment in unit.inside]
        title = _range(names[0], names[-1])
    else:
        names = [node.name.removeprefix(f"{around}/") for node in nodes]
        title = _range(names[0], names[-1])
    which, count = unit.cut
    return f"{title} ({which} of {count})" if count > 1 else title


def _inside(path: str, around: str) -> str:
    """A module path as one calls it inside the module around it."""
    if not around or not path.startswith(f"{around}."):
        return path
    name = path.removeprefix(f"{around}.")
    return f"{around.rpartition('.')[2]}.{name}" if name[0].isdigit() else name


def _range(first: str, last: str) -> str:
    most = (labels.MAX_LINE - 3) // 2
    if len(first) + len(last) + 3 > labels.MAX_LINE:
        first, last = labels.cut(first, most), labels.cut(last, most)
    return f"{first} {ELLIPSIS} {last}"


def _size(nodes: Sequence[Node], unit: Unit, ops: int) -> str:
    parts = []
    modules = sum(segment.kind == "module" for segment in unit.inside)
    if modules > 1:
        parts.append(f"{modules:,} modules")
    if ops:
        parts.append(f"{ops:,} {'op' if ops == 1 else 'ops'}")
    inputs = sum(node.kind == "placeholder" for node in nodes)
    if inputs:
        parts.append(f"{inputs:,} {'input' if inputs == 1 else 'inputs'}")
    return ", ".join(parts) or f"{len(nodes):,} nodes"
