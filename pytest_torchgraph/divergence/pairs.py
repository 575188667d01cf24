"""Corresponding values of two runs, and the regions of nodes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..graph.diff import find_changes
from .valued import Key, ValuedStep
from .values import Budget, closeness, distance, is_close, is_dense, is_same, is_uniform, sketch

_SPREAD = 30
"""Maximum distance between the sketches of close values, in multiples of their rounding."""


def pair_nodes(left: ValuedStep, right: ValuedStep) -> dict[Key, Key]:
    """Map nodes of `right` to the nodes of `left` that the matcher of `diff` pairs them with."""
    # The number of each graph, by its name.
    numbers = [{v.graph.name: n for n, v in enumerate(step.graphs)} for step in (left, right)]
    graphs_left, graphs_right = ([v.graph for v in step.graphs] for step in (left, right))
    _, _, origins = find_changes(graphs_left, graphs_right)
    paired: dict[Key, Key] = {}
    for before, after, names in origins.matched():
        if before is None or after is None:
            continue  # only one side has the graph
        if before.name not in numbers[0] or after.name not in numbers[1]:
            continue  # these are bodies of a higher-order op
        left_number, right_number = numbers[0][before.name], numbers[1][after.name]
        for old, new in names.items():
            # The matcher also names nodes of bodies.
            if (
                old in left.graphs[left_number].graph.by_name
                and new in right.graphs[right_number].graph.by_name
            ):
                paired[right_number, new] = left_number, old
    return paired


def pair_outputs(
    left: ValuedStep, left_outcome: Any, right: ValuedStep, right_outcome: Any
) -> dict[Key, Key]:
    """Map the nodes of `right` with those outputs of the target that differ to nodes of `left`.

    Among several returned nodes with the value of an output, the last one is taken.
    """
    pairs: dict[Key, Key] = {}
    for path, value in right_outcome.outputs.items():
        key, left_key = _find_returned(right, value), None
        if path in left_outcome.outputs:
            left_key = _find_returned(left, left_outcome.outputs[path])
        if key and left_key and not is_close(left.value(left_key), value):
            pairs[key] = left_key
    return pairs


def _find_returned(step: ValuedStep, output: torch.Tensor) -> Key | None:
    """Return the last returned node with the value of an output, `None` if there is none."""
    found = None
    for number, valued in enumerate(step.graphs):
        for node in valued.graph.outputs:
            key = step.resolve(number, node.name)
            value = step.value(key)
            if is_dense(value) and is_same(value, output):
                found = key
    return found


class PairedValues:
    """The values of a step, indexed for lookups with another step's values.

    Args:
        step: the step.

    Attributes:
        step: see the arguments.
    """

    def __init__(self, step: ValuedStep):
        self.step = step
        # The nodes by shape and dtype, each with the two numbers of its sketch.
        self._by_form: dict[Any, list[tuple[Key, float, float]]] = {}
        self._first: dict[Key, Key] = {}
        seen: dict[Any, Key] = {}  # the first node of each value, by form and digest
        for key in [*step.inputs(), *step.order]:
            value = step.value(key)
            if not is_dense(value):
                continue
            form = (tuple(value.shape), value.dtype)
            total, norm = sketch(value)
            self._by_form.setdefault(form, []).append((key, total, norm))
            self._first[key] = seen.setdefault((form, _digest(value)), key)

    def first_equal(self, key: Key) -> Key:
        """Return the first node with the same value: a view, a detach and a clone are one value."""
        return self._first.get(key, key)

    def candidates(self, value: torch.Tensor) -> list[Key]:
        """Return the nodes with exactly this value, or else those equal to it up to rounding."""
        # The sketches exclude most nodes without a comparison of the values.
        total, norm = sketch(value)
        limit = _SPREAD * closeness(value.dtype) * max(norm, 1e-30)
        near = [
            key
            for key, t, n in self._by_form.get((tuple(value.shape), value.dtype), ())
            if abs(t - total) <= limit and abs(n - norm) <= limit
        ]
        near = [key for key in near if is_close(self.step.value(key), value)]
        return [key for key in near if is_same(self.step.value(key), value)] or near


def _has_form(left: Any, right: torch.Tensor) -> bool:
    """Return True for a dense tensor with the shape and dtype of another one."""
    return is_dense(left) and (left.shape, left.dtype) == (right.shape, right.dtype)


def _digest(value: torch.Tensor) -> int:
    """Return a hash of the bytes of a value, in the order of its elements."""
    plain = value.contiguous()
    return hash(plain.reshape(-1).view(torch.uint8).numpy().tobytes())


def _returns_operand(step: ValuedStep, key: Key, value: torch.Tensor) -> bool:
    """Return True if a node returns the value of an operand, such as a product with 1.

    An eager node with this value then corresponds to the operand, not to the node.
    """
    operands = [step.value(operand) for operand in step.operands(key)]
    return any(_has_form(v, value) and is_close(v, value) for v in operands)


def find_anchors(
    eager: PairedValues,
    other: ValuedStep,
    paired: Mapping[Key, Key],
    returned: Mapping[Key, Key],
    budget: Budget,
    before: Mapping[Key, Key] | None = None,
) -> dict[Key, Key]:
    """Map nodes of another step to the eager nodes with the same value.

    Among several eager nodes, the matcher's partner is preferred, then a node of the same kind of
    graph, of the same module, and with the nearest value. Inputs correspond by name, whatever their
    values, because both sides are judged on eager's values.

    Args:
        eager: the values of the eager step.
        other: the other step.
        paired: the eager nodes that the matcher of `diff` pairs nodes with.
        returned: the eager nodes of outputs that differ, by the nodes of the other step. Such a
            node agrees with no other eager node.
        budget: the limits.
        before: the result before a replay. Only values that the replay changed are looked up.
    """
    eager_step = eager.step
    named = {key[1]: key for key in eager_step.inputs()}
    agreeing: dict[Key, Key] = {}
    for key in [*other.inputs(), *other.order]:
        # The operands too, because `_returns_operand` reads their values.
        if before is not None and not other.changed.intersection((key, *other.operands(key))):
            if key in before:
                agreeing[key] = before[key]
            continue
        budget.check()
        value, node = other.value(key), other.node(key)
        if not is_dense(value):
            continue
        if node.kind == "placeholder":
            named_input = named.get(key[1])
            if named_input is not None and _has_form(eager_step.value(named_input), value):
                agreeing[key] = named_input
            continue
        partner = paired.get(key)
        if partner is not None:
            eager_value = eager_step.value(partner)
            if _has_form(eager_value, value) and is_close(eager_value, value):
                agreeing[key] = partner
                continue
        if (
            key in returned
            or is_uniform(value)
            or (partner is not None and _returns_operand(other, key, value))
        ):
            continue
        near = eager.candidates(value)
        if near:
            agreeing[key] = min(
                near,
                key=lambda k: (
                    eager_step.kind(k) != other.kind(key),
                    eager_step.node(k).module != node.module,
                    distance(eager_step.value(k), value),
                ),
            )
    return agreeing


_MAX_NODES = 120
"""Maximum number of nodes in a region. A larger region says too little to report it."""


class TooLargeError(Exception):
    """A region has too many nodes to report."""


@dataclass(frozen=True)
class Region:
    """Nodes that compute a value from other values.

    Attributes:
        boundary: the values at the start of the region.
        nodes: nodes in order; the last node is the value itself.
    """

    boundary: tuple[Key, ...]
    nodes: tuple[Key, ...]


def region(
    step: ValuedStep, target: Key, stops: Callable[[Key], bool], most: int = _MAX_NODES
) -> Region:
    """Return the region that computes a value.

    Args:
        step: the step that contains the value.
        target: the value.
        stops: returns True for a value at which the region starts.
        most: maximum number of nodes.

    Raises:
        TooLargeError: if the region has more nodes.
    """
    boundary: list[Key] = []
    # The target belongs to the region, even if `stops` is true for it.
    nodes, seen, worklist = [target], {target}, [*step.operands(target)]
    while worklist:
        key = worklist.pop()
        if key in seen:
            continue
        seen.add(key)
        # Nothing computes an input, and another draw gives other numbers.
        if stops(key) or step.is_input(key) or step.is_drawn(key):
            boundary.append(key)
            continue
        nodes.append(key)
        if len(nodes) > most:
            raise TooLargeError
        if step.node(key).kind != "get_attr":
            worklist += step.operands(key)
    # An input has no position. It is here only as the target.
    nodes.sort(key=lambda key: step.position_of.get(key, -1))
    return Region(tuple(boundary), tuple(nodes))
