"""Judgement of pairs of values: equal up to rounding, or different, and in which way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
import torch.fx

from ..graph.divergence import form_of
from ..mechanisms.step import LOWER_DTYPES
from ..ops.views import is_view
from .pairs import PairedValues, Region, TooLargeError, region
from .valued import Key, ValuedStep
from .values import Budget, distance, is_close, is_dense, is_same, jittered, scale

Kind = Literal["formula", "random", "state", "operand", "rounding"]
_MIN_RATIO = 8.0
"""Minimum distance of two different formulas, in multiples of eager's own rounding.

Correct float32 pairs are at most 1.4 times apart.
"""
_MIN_RATIO_UNSHARED = 30.0
"""The same minimum for regions that start from different values."""
_MIN_RATIO_RANDOM = 1e3
"""The same minimum for different random numbers."""


@dataclass(frozen=True)
class Judgement:
    """The result of comparing two values, both computed from values of the eager run.

    Attributes:
        key, eager: the two nodes.
        kind: the judgement.
        region, eager_region: the nodes that compute the two values from values that agree.
        size: distance of the two formulas in float64, relative to the largest value. Infinity if
            eager's value is zero everywhere, NaN if numbers are not finite.
        rounding: distance of eager's own value from float64, relative to the largest value.
        ratio: `size` divided by `rounding`.
    """

    key: Key
    eager: Key
    kind: Kind
    region: Region
    eager_region: Region
    size: float = 0.0
    rounding: float = 0.0
    ratio: float = 0.0

    @property
    def is_strong(self) -> bool:
        """True unless rounding explains the difference."""
        return self.kind != "rounding"


class Pair(NamedTuple):
    """Two values to compare, with the regions that compute them.

    Attributes:
        key: the value of the other step.
        eager_key: the value of the eager step.
        region, eager_region: the nodes that compute the values.
    """

    key: Key
    eager_key: Key
    region: Region
    eager_region: Region


class Judge:
    """Judge of pairs of values, one from each of two steps.

    Args:
        eager: the values of the eager step.
        other: the other step.
        agreeing: maps nodes of the other step to eager nodes with the same value.
        budget: the limits.
        judged: the judgements so far. They remain valid after a replay, because they are computed
            from eager's values.
    """

    def __init__(
        self,
        eager: PairedValues,
        other: ValuedStep,
        agreeing: Mapping[Key, Key],
        budget: Budget,
        judged: dict[Any, Judgement | None],
    ) -> None:
        self.eager = eager
        self.other = other
        self.agreeing = agreeing
        # Maps each eager value that the other step also computes to its first position there.
        self.shared: dict[Key, int] = {}
        for key, eager_key in agreeing.items():
            first, position = eager.first_equal(eager_key), other.position_of.get(key, 0)
            self.shared[first] = min(position, self.shared.get(first, position))
        self._budget = budget
        self._judged_cases = judged
        eager_step = eager.step
        self._writing = {
            key
            for key in eager_step.order
            if any(e.kind == "mutates" for e in eager_step.node(key).effects)
        }

    def stops(self, key: Key) -> bool:
        """Return True for a value of the other step that agrees."""
        return key in self.agreeing

    def stops_eager(self, key: Key) -> bool:
        """Return True for a value of the eager step that agrees."""
        return key not in self._writing and self.eager.first_equal(key) in self.shared

    def is_shared_before(self, eager: Key, key: Key) -> bool:
        """Return True if the other step computes an eager value before its own node `key`.

        A later node cannot explain `key`. For example, if the first of two layer norms is wrong,
        the second layer norm or the backward may compute the value that eager has in the first.
        """
        position = self.shared.get(self.eager.first_equal(eager))
        return position is not None and position <= self.other.position_of.get(key, 0)

    def judge_anchors(self) -> list[Judgement]:
        """Judge the pairs that agree up to rounding but not bit by bit."""
        verdicts = []
        for key in self.other.order:
            eager_key = self.agreeing.get(key)
            if eager_key is None:
                continue
            self._budget.check()
            if is_same(self.eager.step.value(eager_key), self.other.value(key)):
                continue
            verdict = self._judge_anchor(key, eager_key)
            if verdict is not None:
                verdicts.append(verdict)
        return verdicts

    def _judge_anchor(self, key: Key, eager_key: Key) -> Judgement | None:
        """Judge one pair of values, both recomputed from a set of agreeing values (a cut).

        As long as the cuts differ, drop the values that only one of them contains, at most four
        times.
        """
        dropped: set[Key] = set()
        dropped_eager: set[Key] = set()
        eager_step = self.eager.step

        def stops(k: Key) -> bool:
            return self.stops(k) and k not in dropped

        def stops_eager(k: Key) -> bool:
            return self.stops_eager(k) and k not in dropped_eager

        for _ in range(4):
            try:
                other_region, eager_region = (
                    region(self.other, key, stops),
                    region(eager_step, eager_key, stops_eager),
                )
            except TooLargeError:
                return None
            cut = {
                self.eager.first_equal(self.agreeing[k])
                for k in other_region.boundary
                if k in self.agreeing
            }
            cut_eager = {self.eager.first_equal(k) for k in eager_region.boundary}
            only_other = {k for k in cut - cut_eager if not eager_step.is_input(k)}
            only_eager = {
                k for k in cut_eager - cut if not eager_step.is_input(k) and k in self.shared
            }
            if not only_other and not only_eager:
                break
            dropped |= {k for k in other_region.boundary if self._first_of(k) in only_other}
            dropped_eager |= {
                k for k in eager_region.boundary if self.eager.first_equal(k) in only_eager
            }
        pair = Pair(key, eager_key, other_region, eager_region)
        return self.compare(pair, shares_cut=not only_other and not only_eager)

    def _first_of(self, key: Key) -> Key | None:
        eager_key = self.agreeing.get(key)
        return None if eager_key is None else self.eager.first_equal(eager_key)

    def compare(self, pair: Pair, *, shares_cut: bool) -> Judgement | None:
        """Compare two values, computed from eager's values at the boundaries of their regions.

        Returns:
            `None` if a region cannot run.
        """
        inputs = tuple(self.agreeing.get(k) for k in pair.region.boundary)
        case = (pair, inputs, shares_cut)
        if case not in self._judged_cases:
            self._judged_cases[case] = self._compare(pair, shares_cut=shares_cut)
        return self._judged_cases[case]

    def _compare(self, pair: Pair, *, shares_cut: bool) -> Judgement | None:
        key, eager_key, other_region, eager_region = pair
        eager_step, other = self.eager.step, self.other
        other_inputs = {
            k: eager_step.value(self.agreeing[k]) if k in self.agreeing else other.value(k)
            for k in other_region.boundary
        }
        eager_inputs = {k: eager_step.value(k) for k in eager_region.boundary}
        value = eager_step.value(eager_key)
        try:
            local = other.evaluate(
                key, other_inputs, other_region.nodes, self._budget, double=False
            )
        except Exception:
            return None
        if not isinstance(local, torch.Tensor) or local.shape != value.shape:
            return None
        # An input without an equal value in the eager run does not agree.
        boundary = tuple(
            k
            for k in other_region.boundary
            if k in self.agreeing and is_close(eager_step.value(self.agreeing[k]), other.value(k))
        )
        other_region = Region(boundary, other_region.nodes)
        if is_same(local, value):
            return Judgement(key, eager_key, "rounding", other_region, eager_region)

        def verdict(
            kind: Kind, size: float, rounding: float = 0.0, ratio: float = 0.0
        ) -> Judgement:
            return Judgement(
                key, eager_key, kind, other_region, eager_region, size, rounding, ratio
            )

        try:
            exact = eager_step.evaluate(
                eager_key, eager_inputs, eager_region.nodes, self._budget, double=True
            )
            exact_other = other.evaluate(
                key, other_inputs, other_region.nodes, self._budget, double=True
            )
        except Exception:  # an op without float64
            exact = exact_other = None
        draws = self._is_random(key, eager_key)
        # Integers, bools and values with another dtype have no rounding: compare exactly.
        if not value.is_floating_point() or local.dtype != value.dtype:
            if is_dense(exact) and is_dense(exact_other) and bool(torch.equal(exact, exact_other)):
                return verdict("rounding", 0.0)
            kind: Kind = "random" if draws else "formula"
            if self._reads_other_operands(pair):
                kind = "operand"
            return verdict(kind, _relative(distance(value, local), value), 0.0, math.inf)
        if not is_dense(exact) or not is_dense(exact_other) or exact.shape != exact_other.shape:
            return None
        crossed = [value.dtype]
        if not shares_cut or len(other_region.nodes) + len(eager_region.nodes) > 2:
            crossed += list(self._dtypes(other_region, eager_region))
        resolution = max(torch.finfo(dtype).eps for dtype in crossed)
        difference, eager_error = distance(exact, exact_other), distance(value, exact)
        floor = max(eager_error, resolution * max(scale(value), 1e-300) * 0.5, 1e-300)
        ratio = difference / floor
        least = 1e-9 * max(scale(exact), 1e-300) if shares_cut else _MIN_RATIO_UNSHARED * floor
        if difference > least and ratio > _MIN_RATIO:
            # A cancelling sum magnifies the rounding of its inputs: not a different formula.
            for step, key_in_step, inputs, region_in_step, result in (
                (eager_step, eager_key, eager_inputs, eager_region, exact),
                (other, key, other_inputs, other_region, exact_other),
            ):
                moved = {k: jittered(value) for k, value in inputs.items()}
                perturbed = step.evaluate(
                    key_in_step, moved, region_in_step.nodes, self._budget, double=True
                )
                floor = max(floor, distance(perturbed, result))
            # A gradient that cancels everywhere consists of its operands' rounding errors.
            boundary_values = [
                v for v in (*other_inputs.values(), *eager_inputs.values()) if is_dense(v)
            ]
            largest = max((scale(v) for v in boundary_values if v.is_floating_point()), default=0.0)
            floor = max(floor, resolution * largest)
            ratio = difference / floor
        if difference > least and ratio > _MIN_RATIO:
            kind = "formula"
            if self._reads_other_operands(pair):
                kind = "operand"
            elif draws and ratio > _MIN_RATIO_RANDOM:
                kind = "random"
            elif self._same_call(pair):
                kind = "state"
        else:
            kind = "rounding"
        reference = exact if scale(exact) else value
        rounding = _relative(eager_error, reference)
        return verdict(kind, _relative(difference, reference), rounding, ratio)

    def _dtypes(self, other_region: Region, eager_region: Region) -> set[torch.dtype]:
        values = [self.other.value(k) for k in (*other_region.nodes, *other_region.boundary)]
        values += [self.eager.step.value(k) for k in (*eager_region.nodes, *eager_region.boundary)]
        return {v.dtype for v in values if isinstance(v, torch.Tensor) and v.dtype in LOWER_DTYPES}

    def _is_random(self, key: Key, eager_key: Key) -> bool:
        """Return True if one of two nodes draws random numbers, or is a result of such a node."""
        for step, key_in_step in ((self.other, key), (self.eager.step, eager_key)):
            node, names = step.node(key_in_step), [key_in_step[1]]
            if node.op == "operator.getitem":
                names += node.refs[:1]
            if any(step.is_random((key_in_step[0], name)) for name in names):
                return True
        return False

    def _same_call(self, pair: Pair) -> bool:
        """Return True if each region is a single op, and the two ops are equal.

        Equal ops also have equal constants and operands with equal values.
        """
        if len(pair.region.nodes) != 1 or len(pair.eager_region.nodes) != 1:
            return False
        values = [self._first_of(operand) for operand in self.other.operands(pair.key)]
        eager_operands = self.eager.step.operands(pair.eager_key)
        same_operands = values == [*map(self.eager.first_equal, eager_operands)]
        return same_operands and self.is_same_form(pair.key, pair.eager_key)

    def _reads_other_operands(self, pair: Pair) -> bool:
        """Return True if both sides call the same ops with the same constants, on other values.

        Operands are compared by value and position. An op that reads another parameter, or the same
        values in another order, therefore reads other operands. The boundaries of the regions do
        not show this: they have no order, and lack a parameter that a later op reads.
        """
        eager_step = self.eager.step
        if _count_ops(self.other, pair.region) != _count_ops(eager_step, pair.eager_region):
            return False  # an op was added, removed or replaced
        is_other, seen, worklist = False, set[tuple[Key, Key]](), [(pair.key, pair.eager_key)]
        while worklist:
            keys = worklist.pop()
            if keys in seen:
                continue
            seen.add(keys)
            operands = self.other.operands(keys[0]), eager_step.operands(keys[1])
            if not self.is_same_form(*keys) or len(operands[0]) != len(operands[1]):
                return False
            for operand, eager_operand in zip(*operands, strict=True):
                equal = self.agreeing.get(operand)
                if equal is None:
                    # Nothing is known about an input or a draw without a value of eager's.
                    if self.other.is_input(operand) or self.other.is_drawn(operand):
                        return False
                    worklist.append((operand, eager_operand))
                    continue
                values = eager_step.value(equal), eager_step.value(eager_operand)
                if not is_dense(values[1]) or values[0].shape != values[1].shape:
                    return False
                if is_close(*values):
                    continue
                if not self._is_available(eager_operand):
                    return False  # the op that computes eager's operand is missing
                is_other = True
        return is_other

    def _is_available(self, eager: Key) -> bool:
        """Return True if the other step has a value of eager's, or could read it from an input."""
        while self.eager.first_equal(eager) not in self.shared:
            operand = operand_of_view(self.eager.step, eager)
            if operand is None:
                return self.eager.step.is_input(eager)
            eager = operand
        return True

    def is_same_form(self, key: Key, eager: Key) -> bool:
        """Return True if two nodes call one op with the same constants."""
        return form_of(self.eager.step.node(eager)) == form_of(self.other.node(key))


def operand_of_view(step: ValuedStep, key: Key) -> Key | None:
    """Return the value that a node is a view of, `None` unless the node is a view."""
    operands = step.operands(key)
    return operands[0] if is_view(step.node(key).op) and len(operands) == 1 else None


def _count_ops(step: ValuedStep, part: Region) -> Counter[str]:
    ops = [step.node(key).op for key in part.nodes]
    return Counter(op for op in ops if op != "operator.getitem" and not is_view(op))


def _relative(difference: float, value: torch.Tensor) -> float:
    """Return a difference relative to the largest value.

    Returns:
        Infinity if the value is zero everywhere, NaN if the value or the difference is not finite.
    """
    if not difference:
        return 0.0
    if not math.isfinite(difference):
        return math.nan
    if largest := scale(value):
        return difference / largest
    return math.inf if bool(value.isfinite().all()) else math.nan


_MAX_EAGER_NODES = 60
"""Maximum number of nodes in the eager region of a suspect."""


class Suspects:
    """Values of a step that match none of eager's values.

    Args:
        judge: compares two values.
        paired: maps nodes to the eager nodes that the matcher of `diff` pairs them with.
        returned: maps nodes of the target's outputs to the eager nodes of these outputs.
        budget: the limits.
    """

    def __init__(
        self,
        judge: Judge,
        paired: Mapping[Key, Key],
        returned: Mapping[Key, Key],
        budget: Budget,
    ):
        self._judge = judge
        self._paired = paired
        self._budget = budget
        self._eager, self._other = judge.eager.step, judge.other
        self._returned_pairs = {**dict(_pair_returned(self._eager, self._other)), **returned}
        # Eager nodes whose values the other step does not compute, by op.
        self._missing: dict[str, list[Key]] = {}
        for key in self._eager.order:
            if judge.eager.first_equal(key) not in judge.shared and is_dense(
                self._eager.value(key)
            ):
                self._missing.setdefault(self._eager.node(key).op, []).append(key)

    def judged(self, skipped: Mapping[Key, object]) -> Iterator[Judgement]:
        """Yield a judgement for each value that differs from eager by more than rounding."""
        for key in self._other.order:
            self._budget.check()
            if key in self._judge.agreeing or key in skipped:
                continue
            if not is_dense(self._other.value(key)) or self._other.is_drawn(key):
                continue
            verdict = self._judge_suspect(key)
            if verdict is not None:
                yield verdict

    def _judge_suspect(self, key: Key) -> Judgement | None:
        candidates = self._candidates(key)
        if not candidates or (key not in self._returned_pairs and self._is_equivalent(key)):
            return None
        judge = self._judge
        try:
            other_region = region(self._other, key, judge.stops)
        except TooLargeError:
            return None
        first = judge.eager.first_equal
        cut = {first(judge.agreeing[k]) for k in other_region.boundary if k in judge.agreeing}
        if not cut:
            return None
        strongest: Judgement | None = None
        for eager in candidates:
            value = self._eager.value(eager)
            if not is_dense(value) or value.shape != self._other.value(key).shape:
                continue
            eager_region = self._eager_region(eager, key)
            if eager_region is None:
                continue
            cut_eager = {first(k) for k in eager_region.boundary}
            other_cut = {k for k in cut if not self._eager.is_input(k)}
            eager_cut = {k for k in cut_eager if not self._eager.is_input(k)}
            moved = other_cut != eager_cut and not (cut_eager <= cut or cut <= cut_eager)
            if moved and not self._may_move(key, eager):
                continue
            pair = Pair(key, eager, other_region, eager_region)
            verdict = judge.compare(pair, shares_cut=cut == cut_eager)
            if verdict is None:
                continue
            if not verdict.is_strong:  # a match: earlier candidates are other values
                is_returned = strongest and self._returned_pairs.get(key) == strongest.eager
                return strongest if is_returned else None
            strongest = strongest or verdict
        return strongest

    def _may_move(self, key: Key, eager: Key) -> bool:
        """Return True if the matcher or the position in the output identifies the two values."""
        if self._returned_pairs.get(key) == eager:
            return True
        same_op = self._eager.node(eager).op == self._other.node(key).op
        return self._paired.get(key) == eager and same_op

    def _eager_region(self, eager: Key, key: Key) -> Region | None:
        judge, is_returned = self._judge, eager in self._returned_pairs.values()

        def stops(node: Key) -> bool:
            if is_returned and node == eager:
                return False
            return judge.stops_eager(node) and judge.is_shared_before(node, key)

        try:
            return region(self._eager, eager, stops, _MAX_EAGER_NODES)
        except TooLargeError:
            return None

    def _candidates(self, key: Key) -> Sequence[Key]:
        """Return the eager values that may correspond to a value, the likeliest first."""
        candidates: list[Key] = []
        if key in self._returned_pairs:
            candidates.append(self._returned_pairs[key])
        partner = self._paired.get(key)
        if partner is not None and (
            self._judge.eager.first_equal(partner) not in self._judge.shared
            # x * 1.0 has the value of x, which another node may agree with.
            or self._eager.node(partner).op == self._other.node(key).op
        ):
            candidates.append(partner)
        original = original_op(self._other.fx(key))
        if self._ends_decomposition(key, original):
            for op in dict.fromkeys((original, self._other.node(key).op)):
                candidates += [
                    k
                    for k in self._missing.get(op, ())
                    if self._eager.kind(k) == self._other.kind(key)
                ]
                candidates += [
                    k
                    for k in self._missing.get("operator.getitem", ())
                    if self._eager.node(self._eager.operands(k)[0]).op == op
                ]
        return list(dict.fromkeys(candidates))

    def _ends_decomposition(self, key: Key, original: str) -> bool:
        """Return True if a value is unused or is used outside its decomposition."""
        node = self._other.fx(key)
        return not node.users or not all(
            user.op != "output"
            and original_op(user) == original
            and user.meta.get("seq_nr") == node.meta.get("seq_nr")
            for user in node.users
        )

    def _is_equivalent(self, key: Key) -> bool:
        """Return True if all values computed from a value agree, so its formula is equivalent."""
        agrees, is_returned = self._reached[key]
        return agrees and not is_returned

    @cached_property
    def _reached(self) -> Mapping[Key, tuple[bool, bool]]:
        """Maps each node to two flags about the values that are computed from it.

        The first flag is True if any of these values agrees. The second flag is True if any is
        returned before a value on its path agrees.
        """
        reached: dict[Key, tuple[bool, bool]] = {}
        for key in reversed(self._other.order):
            valued = self._other.graphs[key[0]]
            agrees = is_returned = False
            for user in self._other.fx(key).users:
                name = valued.name.get(user)
                if user.op == "output" or name is None:
                    is_returned = True
                elif (key[0], name) in self._judge.agreeing:
                    agrees = True
                else:
                    flags = reached.get((key[0], name), (False, False))
                    agrees, is_returned = agrees or flags[0], is_returned or flags[1]
            reached[key] = agrees, is_returned
        return reached


def original_op(node: torch.fx.Node) -> str:
    """Return the op that a node was decomposed from, "" if unknown."""
    original = node.meta.get("original_aten")
    return "" if original is None else str(original)


def _pair_returned(eager: ValuedStep, other: ValuedStep) -> Iterator[tuple[Key, Key]]:
    """Yield pairs of returned values, of a step and of eager, which correspond by position."""
    for number, valued in enumerate(other.graphs):
        for eager_number, eager_graph in enumerate(eager.graphs):
            if eager.kind((eager_number, "")) != other.kind((number, "")):
                continue
            pairs = eager_graph.graph.outputs, valued.graph.outputs
            if len(pairs[0]) == len(pairs[1]):
                for old, new in zip(*pairs, strict=True):
                    yield (number, new.name), (eager_number, old.name)
