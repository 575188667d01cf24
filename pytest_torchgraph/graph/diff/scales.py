"""Calibrated constants: scales and zero points that follow from an edit.

Calibration measures the values that a model computes. After an edit, the scales and zero points at
the edited values, and after them, are different numbers. Such changes are consequences of the
nearest edit. Without any edit, all of them are one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..equality import NumberedGraph, reachable
from ..model import Arg, Node
from .constants import quantizes
from .correspondence import Correspondence
from .differing import have_same_result
from .findings import Change, Finding, Place, one_place
from .origins import Occurrence, Origins
from .rules import CALIBRATED

SCALE_ARGUMENTS = ("scale", "zero_point")
"""Arguments with a calibrated value. All quantize and dequantize ops have them in this order."""


def is_scale(change: Change) -> bool:
    """Return True if only the value of a scale or of a zero point changed."""
    before, after = change.before, change.after
    if change.kind != "changed" or before is None or after is None or before.op != after.op:
        return False
    if not quantizes(after) or not have_same_result(before, after):
        return False
    return _constants_without_scales(before) == _constants_without_scales(after)


def _constants_without_scales(node: Node) -> tuple[Sequence[Arg], Mapping[str, Arg]]:
    """Return the constants of a node, with placeholders for its scale and its zero point."""
    args: list[Arg] = []
    after_scale = False
    for value in node.args:
        is_float = isinstance(value, float)
        # Positional arguments have no names. A float is the scale, and an int directly after it is
        # the zero point. Booleans are ints in Python, but are flags here.
        is_zero_point = after_scale and isinstance(value, int) and not isinstance(value, bool)
        is_tensor = hasattr(value, "name")
        args.append("calibrated" if is_float or is_zero_point else "" if is_tensor else value)
        after_scale = is_float
    kwargs = {key: "" if hasattr(value, "name") else value for key, value in node.kwargs.items()}
    return args, {**kwargs, **dict.fromkeys(kwargs.keys() & {*SCALE_ARGUMENTS}, "calibrated")}


def attach_scales(findings: Iterable[Finding], origins: Origins) -> list[Finding]:
    """Return the findings, with scales and zero points as consequences of the nearest edits.

    Args:
        findings: the findings of one comparison, one place each.
        origins: the origins of the changes.
    """
    findings = list(findings)
    if not any(is_scale(change) for finding in findings for change in finding.changes):
        return findings
    edits: list[Finding] = []
    scales: list[Finding] = []
    for finding in findings:
        scale_changes = [change for change in finding.changes if is_scale(change)]
        # Calibration after an edit changes the scales of all later layers. Each scale is a finding
        # so far.
        if len(scale_changes) == len(finding.changes):
            scales.append(finding)
        elif scale_changes:
            others = [change for change in finding.changes if not is_scale(change)]
            origins.because(CALIBRATED, scale_changes, others[0])
            consequences = (*scale_changes, *finding.consequences)
            edits.append(one_place(others, finding.summary, consequences=consequences))
        else:
            edits.append(finding)
    reach = _EditedValues(edits, origins)
    places_without_edit: list[Place] = []
    following: dict[int, list[Change]] = {}
    for finding in scales:
        nearest = reach.nearest_edit(finding)
        if nearest is None:
            places_without_edit += finding.places
        else:
            following.setdefault(nearest, []).extend((*finding.changes, *finding.consequences))
    for edit_number, changes in following.items():
        place = edits[edit_number].places[0]
        origins.because(CALIBRATED, changes, place.changes[0])
        place = replace(place, consequences=(*place.consequences, *changes))
        edits[edit_number] = replace(
            edits[edit_number], places=(place, *edits[edit_number].places[1:])
        )
    # A calibration with other data changes every scale. That is one finding, not one for each op.
    return [*edits, Finding(tuple(places_without_edit))] if places_without_edit else edits


class _EditedValues:
    """The values of the new graphs that edits take, and the values computed after an edit.

    Args:
        edits: the findings that do not consist of scales, one place each.
        origins: the origins of their changes.
    """

    def __init__(self, edits: Iterable[Finding], origins: Origins):
        self.origins = origins
        self.chains: dict[int, _EditsByValue] = {}
        for number, edit in enumerate(edits):
            for change in edit.changes:
                for node in origins.nodes(change):
                    values = self.chains.setdefault(id(node.matching), _EditsByValue(node.matching))
                    # A changed node counts once, in the new graph. A removed node has no new
                    # number, so its operands and users stand for it.
                    if node.is_new or change.after is None:
                        values.touch_node(number, node)

    def nearest_edit(self, finding: Finding) -> int | None:
        """Return the number of the nearest edit that changed scales follow from, or `None`."""
        candidates: list[tuple[int, int]] = []
        for change in finding.changes:
            _, new = self.origins.of(change)
            if new is not None and id(new.matching) in self.chains:
                candidates += self.chains[id(new.matching)].iter_edits(new.number)
        return min(candidates)[1] if candidates else None


class _EditsByValue:
    """The values of one new graph, with the edits that they follow from.

    Attributes:
        m: the matching of the graph.
        flat: the graph.
        touched: number of an edit for each value that an edit takes.
        starts: number of an edit for each node that belongs to the edit, or that used a node that
            the edit removed.
    """

    def __init__(self, matching: Correspondence):
        self.m = matching
        self.flat: NumberedGraph = matching.b
        self.touched: dict[int, int] = {}
        self.starts: dict[int, int] = {}

    def touch_node(self, number: int, node: Occurrence) -> None:
        """Record a new node of an edit, or a removed node.

        Args:
            number: the number of the edit.
            node: the node.
        """
        operands = node.flat.operands[node.number]
        if node.is_new:
            self.starts.setdefault(node.number, number)
            self.touched.update(dict.fromkeys(operands, number))
            return
        for values, numbers in (
            (self.starts, [user for user, _ in node.flat.users[node.number]]),
            (self.touched, operands),
        ):
            partners = (self.m.forward[i] for i in numbers)
            values.update(dict.fromkeys((j for j in partners if j != -1), number))

    @cached_property
    def edit_before(self) -> Mapping[int, tuple[int, int]]:
        """Maps each value that comes after an edit to the last edit before it: (start, number)."""
        last_edits: dict[int, tuple[int, int]] = {}
        for i, operands in enumerate(self.flat.operands):
            if i in self.starts:
                last_edits[i] = (i, self.starts[i])
                continue
            before = [last_edits[p] for p in operands[: self.flat.arity[i]] if p in last_edits]
            if before:
                last_edits[i] = max(before)
        return last_edits

    def iter_edits(self, i: int) -> Iterator[tuple[int, int]]:
        """Yield the distance and the number of each edit that a scale follows from."""
        for value in self._quantizer_chain(i):
            if value in self.touched:
                yield abs(value - i), self.touched[value]
            if value in self.edit_before:
                start, number = self.edit_before[value]
                yield abs(start - i), number

    def _quantizer_chain(self, i: int) -> set[int]:
        """Return the operands and results in the chain of a quantize op.

        The chain is quantize, dequantize, and the ops that take the result.
        """

        def neighbours(node: int) -> list[int]:
            # A quantize op and its dequantize op have the same constants, so both change together.
            # The chain ends at the ops that compute.
            if not quantizes(self.flat.nodes[node]):
                return []
            operands = self.flat.operands[node][: self.flat.arity[node]]
            users = [user for user, _ in self.flat.users[node]]
            return users + [p for p in operands if quantizes(self.flat.nodes[p])]

        chain = reachable([i], neighbours)
        operands_of_chain = (self.flat.operands[node][: self.flat.arity[node]] for node in chain)
        return chain.union(*operands_of_chain)
