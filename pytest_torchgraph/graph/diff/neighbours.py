"""Join differing nodes with the differing nodes that they take values from."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...ops.views import is_view
from ..equality import NumberedGraph
from .constants import quantizes
from .correspondence import REACH
from .node_changes import NodeChanges, NodeKey
from .paths import holds
from .rules import COPY, QUANTIZER, READS

CLONE = "aten.clone.default"
_RESHAPES = re.compile(r"(?:reshape|flatten)(?:_\d+)?$")


def join_neighbours(changes: NodeChanges) -> None:
    """Join differing nodes to the differing operands that belong to the same edit.

    An added or removed node joins operands of its own kind and changed operands, unless the two are
    separate edits. A changed node always joins added and removed operands. A changed dequantize op
    also joins a changed quantize op.
    """
    for key, change in list(changes.by_key.items()):
        if change.kind == "removed":
            for p in _value_operands(changes.a, change.before):
                _join_operand(changes, key, changes.key_of_old(p))
        elif change.kind == "added":
            for q in _value_operands(changes.b, change.after):
                _join_operand(changes, key, changes.key_of_new(q))
        elif change.kind == "changed":
            for p in _value_operands(changes.a, change.before):
                if changes.kind_of(changes.key_of_old(p)) == "removed":
                    changes.join(READS, key, changes.key_of_old(p))
            for q in _value_operands(changes.b, change.after):
                operand = changes.key_of_new(q)
                if changes.kind_of(operand) == "added":
                    changes.join(READS, key, operand)
                elif _is_quantized(changes, q, change.after):
                    changes.join(QUANTIZER, key, operand)


def _join_operand(changes: NodeChanges, key: NodeKey, operand: NodeKey) -> None:
    """Join an added or removed node to an operand, if the two are one edit."""
    is_edited = changes.kind_of(operand) in (changes.kind_of(key), "changed")
    if is_edited and not _is_separate_edit(changes, operand, key):
        changes.join(READS, key, operand)


def _is_separate_edit(changes: NodeChanges, operand: NodeKey, reader: NodeKey) -> bool:
    """Return True if the edit of a value is separate from the edit of a node that reads the value.

    For example, a new norm takes the place of an old norm, and an added gate reads the new norm.
    The norm and the gate are two edits. An exchanged op and an added module next to the op are two
    edits as well.
    """
    side, number = operand
    if side == "a" and number in changes.m.exchanged:
        return True
    module, reading_module = map(changes.module_of, (operand, reader))
    is_nested = holds(module, reading_module) or holds(reading_module, module)
    return operand in changes.replaced and not is_nested


def _is_quantized(changes: NodeChanges, q: int, user: int) -> bool:
    """Return True if a changed quantize op is the operand of a dequantize op.

    The two ops have the same constants, so the two changes are one edit.
    """
    is_changed = changes.kind_of(changes.key_of_new(q)) == "changed"
    return is_changed and quantizes(changes.b.nodes[q]) and quantizes(changes.b.nodes[user])


def join_copies(changes: NodeChanges) -> None:
    """Join a copy made by `reshape` or `flatten` to the edit that the copied value is a view of.

    These functions copy only if the strides of the operand do not allow a view, so the copy follows
    from the edit. A call of `clone` is an edit of its own.
    """
    for key, change in list(changes.by_key.items()):
        if change.kind not in ("added", "removed"):
            continue
        is_old = change.kind == "removed"
        flat, number = (changes.a, change.before) if is_old else (changes.b, change.after)
        key_of = changes.key_of_old if is_old else changes.key_of_new
        if flat.nodes[number].op != CLONE:
            continue
        if not any(_is_reshaped(changes, flat, user) for user, _ in flat.users[number]):
            continue
        for _ in range(REACH):
            number = flat.operands[number][0]
            operand = key_of(number)
            if changes.kind_of(operand):
                changes.join(COPY, key, operand)
                break
            if not is_view(flat.nodes[number].op) or not flat.operands[number]:
                break


def _is_reshaped(changes: NodeChanges, flat: NumberedGraph, i: int) -> bool:
    """Return True if a matched node is the result of a call of `reshape` or `flatten`."""
    before, after = (i, changes.m.forward[i]) if flat is changes.a else (changes.m.backward[i], i)
    if -1 in (before, after):
        return False
    sources = changes.a.nodes[before].source, changes.b.nodes[after].source
    calls = {_RESHAPES.match(source.call) is not None for source in sources if source}
    return calls == {True}


def _value_operands(flat: NumberedGraph, i: int) -> Iterable[int]:
    """Return the operands with which a node shares a value or a storage."""
    # Each random op also has the preceding random op as operand. Such operands joined the dropouts
    # of four layers to one edit in one place, and made the last layer differ from the others.
    return (p for slot, p in enumerate(flat.operands[i]) if not flat.takes_turns(i, slot))
