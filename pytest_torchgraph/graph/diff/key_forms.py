"""The parts that the key of an edit consists of, relative to the module instances of the edit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..equality import NumberedGraph
from ..model import Node, Result, TensorMeta
from ..text import format_result
from .differing import have_same_result
from .findings import Change
from .match import DERIVED, without_target
from .paths import relative_to_instances


def without_derived(changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes without graph outputs, saved values and tangents, which say little.

    If nothing else changed, these changes are the edit and are returned.
    """
    informative = [
        change
        for change in changes
        if change.node.kind != "output"
        and not (change.node.kind == "placeholder" and change.node.op in DERIVED)
    ]
    return informative or changes


def name_form(node: Node, instances: Sequence[str]) -> tuple[Hashable, ...]:
    """Return the name of a node relative to the instances, or its full name outside all lists."""
    relative_name = relative_to_instances(node.name, instances)
    if relative_name is None:
        return "named", without_graph(node.name)
    return (
        ("inside", relative_name[2]) if relative_name[:2] == (0, 0) else ("beside", *relative_name)
    )


def without_graph(name: str) -> str:
    """Return a name without the producing graph: `fc/addmm` for `forward_0:fc/addmm`."""
    before, colon, rest = name.partition(":")
    return rest if colon and before.replace("_", "").isalnum() else name


def call_form(flat: NumberedGraph, i: int, instances: Sequence[str]) -> Hashable:
    """Return kind, op, constants and effects of a node; for an input, its role.

    The path of a module that the node calls is relative to the instance.
    """
    node = flat.nodes[i]
    call = node.op, flat.shapeless[i]
    if not node.target:
        return call
    return without_target(node, call[1]), place_form(node.target, instances)


def place_form(path: str, instances: Sequence[str]) -> Hashable:
    """Return a module path relative to the instance of an edit, or the full path outside it."""
    relative_path = relative_to_instances(path, instances)
    return path if relative_path is None else relative_path


def result_form(flat: NumberedGraph, i: int, changed: Change | None) -> Hashable:
    """Return the part of dtype and shape that characterizes an edit.

    Args:
        flat, i: the graph and the node.
        changed: the change, if the node has a partner.
    """
    # The shape of a new value follows from its op, constants and operands.
    if changed is None:
        return _layouts(flat.nodes[i].result)
    assert changed.before is not None
    assert changed.after is not None
    if have_same_result(changed.before, changed.after):
        return "same"
    return _changed_sizes(flat.nodes[i].result, changed.before.result, changed.after.result)


def _changed_sizes(result: Result, before: Result, after: Result) -> Hashable:
    """Return dtype and shape of a result, without the sizes that are equal before and after.

    A larger kernel is the same edit in convolutions with other numbers of channels.
    """
    metas = [meta for meta in (result, before, after) if isinstance(meta, TensorMeta)]
    if len(metas) < 3 or len({len(meta.shape) for meta in metas}) > 1:
        return "" if result is None else format_result(result)
    sizes = zip(*(meta.shape for meta in metas), strict=True)
    changed = (str(size) if old != new else "same" for size, old, new in sizes)
    return metas[0].dtype, metas[0].layout, tuple(changed)


def _layouts(result: Result) -> Hashable:
    if isinstance(result, TensorMeta):
        return result.dtype, result.layout
    return tuple(map(_layouts, result)) if isinstance(result, tuple) else type(result).__name__
