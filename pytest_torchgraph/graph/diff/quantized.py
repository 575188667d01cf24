"""What follows from an edit of a quantized model: calibrated constants and unfolded batch norms.

Calibration measures the values that a model computes. After an edit, the scales and zero points at
the edited values, and after them, are different numbers. Such changes are consequences of the
nearest edit. Without any edit, all of them are one finding.

A quantizer folds a batch norm into the weight and the bias of the convolution before it. An op
between the two prevents folding: the batch norm appears in the graph, and the convolution loses the
bias that the batch norm was folded into. Both are consequences of the op between. If that op is
removed, the batch norm disappears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..equality import NumberedGraph, reachable
from ..model import Node, Ref
from .constants import quantizes
from .differing import have_same_result
from .findings import SIDES, Change, Finding, Place, one_place
from .moves import OWN_VALUES
from .origins import Key, Occurrence, Origins
from .rules import CALIBRATED, FOLDED_NORM

SCALE_ARGUMENTS = ("scale", "zero_point")
"""Arguments with a calibrated value. All quantize and dequantize ops have them in this order."""
BIAS = 2
"""Position of the bias among the arguments of a convolution or linear layer."""


def attach_quantized(findings: Iterable[Finding], origins: Origins) -> list[Finding]:
    """Return the findings, with what only follows in a quantized model as consequences.

    Args:
        findings: the findings of one comparison, one place each.
        origins: the origins of the changes.
    """
    without_norms = [_without_batch_norms(finding, origins) for finding in findings]
    return _attach_scales(without_norms, origins)


def _with_consequences(finding: Finding, follow: Iterable[Change]) -> Finding:
    """Return a finding of one place with some of its changes, and others, as consequences."""
    follow = tuple(follow)
    follows = {*map(id, follow)}
    kept = [change for change in finding.changes if id(change) not in follows]
    consequences = (*follow, *finding.consequences)
    return one_place(kept, finding.summary, consequences=consequences, details=finding.details)


# -- scales ----------------------------------------------------------------------------------------


def is_scale(change: Change) -> bool:
    """Return True if only the value of a scale or of a zero point changed."""
    before, after = change.before, change.after
    if change.kind != "changed" or before is None or after is None or before.op != after.op:
        return False
    if not quantizes(after) or not have_same_result(before, after):
        return False
    return _constants_without_scales(before) == _constants_without_scales(after)


def _constants_without_scales(node: Node) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the constants of a node, with placeholders for its scale and its zero point."""
    args: list[Any] = []
    after_scale = False
    for value in node.args:
        is_float = isinstance(value, float)
        # Positional arguments have no names. A float is the scale, and an int directly after it is
        # the zero point. Booleans are ints in Python, but are flags here.
        is_zero_point = after_scale and isinstance(value, int) and not isinstance(value, bool)
        is_value = isinstance(value, Ref)
        args.append("calibrated" if is_float or is_zero_point else "" if is_value else value)
        after_scale = is_float
    kwargs = {key: "" if isinstance(value, Ref) else value for key, value in node.kwargs.items()}
    return args, {**kwargs, **dict.fromkeys(kwargs.keys() & {*SCALE_ARGUMENTS}, "calibrated")}


def _attach_scales(findings: list[Finding], origins: Origins) -> list[Finding]:
    """Attach changed scales to the nearest edits. Scales without an edit become the last finding.

    Returns:
        The findings without those of scales only; the scales in other findings are consequences.
    """
    scales = [[change for change in finding.changes if is_scale(change)] for finding in findings]
    if not any(scales):
        return findings
    edits: list[Finding] = []
    follows: list[list[Change]] = []
    alone: list[Finding] = []
    for finding, changes in zip(findings, scales, strict=True):
        # Calibration after an edit changes the scales of all later layers. Each scale is a finding
        # so far.
        if len(changes) == len(finding.changes):
            alone.append(finding)
        else:
            edits.append(finding)
            follows.append(changes)
    near = _nearest_edits(edits, origins)
    places_without_edit: list[Place] = []
    for finding in alone:
        nodes = [new for change in finding.changes if (new := origins.of(change)[1])]
        candidates = [edit for node in nodes for edit in _edits_of(node, near)]
        if candidates:
            follows[min(candidates)[1]] += (*finding.changes, *finding.consequences)
        else:
            places_without_edit += finding.places
    attached = []
    for edit, changes in zip(edits, follows, strict=True):
        if changes:
            edit = _with_consequences(edit, changes)
            origins.because(CALIBRATED, changes, edit.changes[0])
        attached.append(edit)
    # A calibration with other data changes every scale. That is one finding, not one for each op.
    return [*attached, *([Finding(tuple(places_without_edit))] if places_without_edit else [])]


_Edits = Mapping[Key, list[tuple[int, int]]]
"""The edits that a value follows from: where each starts, and its number."""


def _nearest_edits(edits: Iterable[Finding], origins: Origins) -> _Edits:
    """Return the edits that the values of the new graphs follow from.

    An operand of an edit follows from it, and so does each later value, if no other edit is nearer.
    """
    touched: dict[Key, list[tuple[int, int]]] = {}
    starts: dict[Key, int] = {}
    flats: dict[int, Occurrence] = {}
    for number, edit in enumerate(edits):
        for change in edit.changes:
            old, new = origins.of(change)
            # A removed node has no new number, so its operands and users stand for it.
            node = new or old
            if node is None:
                continue
            flats.setdefault(id(node.matching), node)
            operands = [*map(node.at, node.flat.operands[node.number])]
            users = [node.at(user) for user, _ in node.flat.users[node.number]]
            for value in _in_new(operands):
                touched.setdefault(value.key, []).append((value.number, number))
            for value in [new] if new else _in_new(users):
                starts[value.key] = number
    for some_node in flats.values():
        flat: NumberedGraph = some_node.matching.b
        last: dict[int, tuple[int, int]] = {}  # start and number of the nearest edit of each node
        for i in range(len(flat.nodes)):
            key = Occurrence(some_node.matching, True, i).key
            before = [last[p] for p in flat.operands[i][: flat.arity[i]] if p in last]
            if key in starts:
                before = [(i, starts[key])]
            if before:
                last[i] = max(before)  # the edit that starts last is the nearest
                touched.setdefault(key, []).append(last[i])
    return touched


def _in_new(nodes: Iterable[Occurrence]) -> Iterator[Occurrence]:
    """Yield the nodes, or their partners, in the new graph."""
    for node in nodes:
        if (new := node if node.is_new else node.partner()) is not None:
            yield new


def _edits_of(scale: Occurrence, near: _Edits) -> Iterator[tuple[int, int]]:
    """Yield the distance and the number of each edit that a scale follows from."""
    flat = scale.flat

    def neighbours(node: int) -> list[int]:
        # A quantize op and its dequantize op have the same constants, so both change together.
        # The chain ends at the ops that compute.
        if not quantizes(flat.nodes[node]):
            return []
        operands = flat.operands[node][: flat.arity[node]]
        users = [user for user, _ in flat.users[node]]
        return users + [p for p in operands if quantizes(flat.nodes[p])]

    chain = reachable([scale.number], neighbours)
    operands_of_chain = (flat.operands[node][: flat.arity[node]] for node in chain)
    for value in chain.union(*operands_of_chain):
        for start, number in near.get(scale.at(value).key, ()):
            yield abs(start - scale.number), number


# -- batch norms -----------------------------------------------------------------------------------


def _without_batch_norms(finding: Finding, origins: Origins) -> Finding:
    """Return a finding with unfolded or folded batch norms as consequences, if it has any."""
    norms = [c for c in finding.changes if c.kind in SIDES and "batch_norm" in c.node.op]
    if finding.summary or not norms:
        return finding
    own = {node.key: change for change in finding.changes for node in origins.nodes(change)}
    follow: set[int] = set()
    for norm in norms:
        if (before := _layer_before(norm, own, origins)) is not None:
            follow |= {id(norm), id(before)}
    # The weights that only these nodes use follow with them.
    users = {key for key, change in own.items() if id(change) in follow}
    for change in finding.changes:
        if change.node.op in OWN_VALUES and all(
            node.at(user).key in users
            for node in origins.nodes(change)
            for user, _ in node.flat.users[node.number]
        ):
            follow.add(id(change))
    changes = [change for change in finding.changes if id(change) in follow]
    kept = [change for change in finding.changes if id(change) not in follow]
    # If there is no op in between, the user added or removed the batch norm.
    if not changes or not any(change.node.is_call for change in kept):
        return finding
    origins.because(FOLDED_NORM, changes, kept[0])
    return _with_consequences(finding, changes)


def _layer_before(norm: Change, own: Mapping[Key, Change], origins: Origins) -> Change | None:
    """Return the convolution before the ops that prevent folding of a batch norm, if any do."""
    node = next(origins.nodes(norm), None)
    between = 0  # the ops of the edit from the norm back to the convolution
    while node is not None and (operands := node.flat.operands[node.number]):
        node = node.at(operands[0])
        change = own.get(node.key)
        if change is None or change.kind != norm.kind:
            is_layer = between and change is not None and _differs_in_bias(change, origins)
            return change if is_layer else None
        between += 1
    return None


def _differs_in_bias(change: Change, origins: Origins) -> bool:
    """Return True if an op of a quantized graph differs only in the presence of its bias."""
    before, after = change.before, change.after
    if before is None or after is None or before.op != after.op or change.kind != "changed":
        return False
    # A bias is one reference more.
    if (len(before.refs) == len(after.refs)) or before.kwargs != after.kwargs:
        return False
    if before.args[BIAS + 1 :] != after.args[BIAS + 1 :]:
        return False
    # Compressed weights have no quantize op, so any quantize op in the graph counts.
    flats = (node.flat for node in origins.nodes(change))
    return all(any(map(quantizes, flat.nodes)) for flat in flats)
