"""Label and tooltip of a group: its modules or nodes, op counts and effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...graph.model import Node
from ...words import counted, listed
from ..look import MAX_LINE, SIGNS, TIMES, cut, op_label
from .clustering import Unit

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
MAX_OPS = 4
"""Maximum number of different ops in the label, the most frequent first."""
MAX_LISTED = 12
"""Maximum number of different ops, and of modules, in the tooltip."""
MAX_TARGET = 24
"""Maximum characters of a mutated tensor's name, to leave room for the rest of the line."""

EFFECT_NOUNS = {
    "random": "random",
    "communicates": "collective",
    "syncs": "wait",
    "opaque": "opaque",
}
"""Nouns for counted side effects, keyed by the kind of effect."""


class GroupText(NamedTuple):
    """The texts of a group.

    Attributes:
        title: first line: the module, or the first and last of several modules or nodes.
        lines: lines of the label, including the title.
        tooltip: lines of the tooltip.
    """

    title: str
    lines: list[str]
    tooltip: list[str]


def group_text(
    nodes: Sequence[Node], unit: Unit, notes: Mapping[str, int], change_counts: Mapping[str, int]
) -> GroupText:
    """Return the texts of a group.

    Args:
        nodes: nodes of the group, in graph order.
        unit: content of its box.
        notes: further facts, each with its number of nodes.
        change_counts: number of nodes per kind of change mark.
    """
    ops = Counter(op_label(node.op) for node in nodes if node.is_call)
    title = _title(nodes, unit)
    lines = [title, _describe_size(nodes, unit, ops.total())]
    op_texts = [f"{count} {TIMES} {op}" for op, count in ops.most_common(MAX_OPS)]
    if len(ops) > MAX_OPS:
        op_texts[-1] += f", {ELLIPSIS}"
    lines += _pack_lines(op_texts)
    effects = Counter(
        EFFECT_NOUNS[effect.kind]
        for node in nodes
        for effect in node.effects
        if effect.kind in EFFECT_NOUNS
    )
    mutated = dict.fromkeys(
        effect.target.name
        for node in nodes
        for effect in node.effects
        if effect.kind == "mutates" and effect.target is not None
    )
    # Only one name is shown: a group that updates running statistics mutates dozens of tensors.
    if mutated:
        lines.append(f"mutates {listed((cut(name, MAX_TARGET) for name in mutated), 1)}")
    lines += [f"{count} {fact}" for fact, count in {**effects, **notes}.items()]
    if change_counts:
        counts = change_counts.items()
        lines.append(", ".join(f"{SIGNS[kind]} {count} {kind}" for kind, count in counts))
    # The tooltip has room for more ops than the label.
    tooltip = [title, lines[1]]
    tooltip += [f"{count} {TIMES} {op}" for op, count in ops.most_common(MAX_LISTED)]
    if len(unit.inside) > 1:
        tooltip += [segment.label for segment in unit.inside[:MAX_LISTED]]
        if len(unit.inside) > MAX_LISTED:
            tooltip.append(f"{ELLIPSIS} {len(unit.inside) - MAX_LISTED} more")
    return GroupText(title, lines, tooltip)


def _pack_lines(words: Sequence[str]) -> Iterator[str]:
    """Yield comma-separated words in as few lines as possible."""
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > MAX_LINE:
            yield line
            line = ""
        line = f"{line}, {word}" if line else word
    if line:
        yield line


def _title(nodes: Sequence[Node], unit: Unit) -> str:
    segment = unit.cluster[-1] if unit.cluster else None
    module = segment.label if segment is not None and segment.kind == "module" else ""
    if len(unit.inside) == 1:
        title = unit.inside[0].label
    elif unit.inside:
        names = [_relative_path(segment.label, module) for segment in unit.inside]
        title = _format_range(names[0], names[-1])
    else:
        names = [node.name.removeprefix(f"{module}/") for node in nodes]
        title = _format_range(names[0], names[-1])
    part, count = unit.cut
    return f"{title} ({part} of {count})" if count > 1 else title


def _relative_path(path: str, enclosing: str) -> str:
    """Return a module path relative to the enclosing module: `mlp`, or `layers.3` in a list."""
    if not enclosing or not path.startswith(f"{enclosing}."):
        return path
    # The index alone would not say what it counts.
    name = path.removeprefix(f"{enclosing}.")
    return f"{enclosing.rpartition('.')[2]}.{name}" if name[0].isdigit() else name


def _format_range(first: str, last: str) -> str:
    """Return the first and last of several names on one line."""
    if len(first) + len(last) + 3 > MAX_LINE:
        first, last = (cut(name, (MAX_LINE - 3) // 2) for name in (first, last))
    return f"{first} {ELLIPSIS} {last}"


def _describe_size(nodes: Sequence[Node], unit: Unit, ops: int) -> str:
    parts = []
    modules = sum(segment.kind == "module" for segment in unit.inside)
    if modules > 1:
        parts.append(f"{modules:,} modules")
    if ops:
        parts.append(counted(ops, "op"))
    inputs = sum(node.kind == "placeholder" for node in nodes)
    if inputs:
        parts.append(counted(inputs, "input"))
    return ", ".join(parts) or f"{len(nodes):,} nodes"
