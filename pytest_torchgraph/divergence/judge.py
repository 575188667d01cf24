"""Judgement of pairs of values: equal up to rounding, or different, and in which way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


class _Formula(NamedTuple):
    """A value as it is computed by the nodes of a region.

    Attributes:
        step, key: the value, and the step that contains it.
        inputs: the values at the boundary of the region.
        nodes: the nodes of the region.
        budget: the limits.
    """

    step: ValuedStep
    key: Key
    inputs: Mapping[Key, Any]
    nodes: tuple[Key, ...]
    budget: Budget

    def evaluate(self, *, double: bool = False) -> Any:
        """Return the value, computed in float64 if `double`."""
        return self.step.evaluate(self.key, self.inputs, self.nodes, self.budget, double=double)


def _magnified_rounding(
    sides: Sequence[_Formula], exact: Sequence[torch.Tensor], resolution: float
) -> float:
    """Return how far the rounding of inputs may move the values of two formulas.

    Args:
        sides: the formulas.
        exact: their values in float64.
        resolution: the resolution of the inputs.
    """
    effects = [0.0]
    for side, result in zip(sides, exact, strict=True):
        inputs = {k: jittered(value) for k, value in side.inputs.items()}
        # A cancelling sum magnifies the rounding of its inputs: not a different formula.
        effects.append(distance(side._replace(inputs=inputs).evaluate(double=True), result))
        # A gradient that cancels everywhere consists of its operands' rounding errors.
        effects += [
            resolution * scale(value)
            for value in side.inputs.values()
            if is_dense(value) and value.is_floating_point()
        ]
    return max(effects)


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
        # Maps each eager value that the other step also computes to its first position there. An
        # input has no position: 0, because it exists before every node.
        self.shared: dict[Key, int] = {}
        for key, eager_key in agreeing.items():
            first, position = eager.first_equal(eager_key), other.position_of.get(key, 0)
            self.shared[first] = min(position, self.shared.get(first, position))
        self._budget = budget
        self._judged_cases = judged
        eager_step = eager.step
        # Eager nodes that write to a tensor. A region runs them again instead of starting at them,
        # because the kept value of the written tensor may be a copy from before the write.
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
        times. If they still differ then, they are compared with wider limits.

        Returns:
            `None` if a region is too large or cannot run.
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
                other_region = region(self.other, key, stops)
                eager_region = region(eager_step, eager_key, stops_eager)
            except TooLargeError:
                return None
            cut = {
                self.eager.first_equal(self.agreeing[k])
                for k in other_region.boundary
                if k in self.agreeing
            }
            cut_eager = {self.eager.first_equal(k) for k in eager_region.boundary}
            # An input ends every region, so it cannot be dropped.
            only_other = {k for k in cut - cut_eager if not eager_step.is_input(k)}
            only_eager = {
                k for k in cut_eager - cut if not eager_step.is_input(k) and k in self.shared
            }
            shares_cut = not (only_other or only_eager)
            if shares_cut:
                break
            dropped |= {k for k in other_region.boundary if self._first_of(k) in only_other}
            dropped_eager |= {
                k for k in eager_region.boundary if self.eager.first_equal(k) in only_eager
            }
        pair = Pair(key, eager_key, other_region, eager_region)
        return self.compare(pair, shares_cut=shares_cut)

    def _first_of(self, key: Key) -> Key | None:
        """Return the first eager node with the value of a node, `None` if it does not agree."""
        eager_key = self.agreeing.get(key)
        return None if eager_key is None else self.eager.first_equal(eager_key)

    def compare(self, pair: Pair, *, shares_cut: bool) -> Judgement | None:
        """Compare two values, computed from eager's values at the boundaries of their regions.

        Args:
            pair: the values and their regions.
            shares_cut: True if both regions start from the same values. Otherwise, a difference
                must be larger to count.

        Returns:
            `None` if a region cannot run, or a result has another shape.
        """
        # A replay changes the eager values that the other region starts from, so they are part of
        # the key.
        inputs = tuple(self.agreeing.get(k) for k in pair.region.boundary)
        case = (pair, inputs, shares_cut)
        if case not in self._judged_cases:
            self._judged_cases[case] = self._compare(pair, shares_cut=shares_cut)
        return self._judged_cases[case]

    def _compare(self, pair: Pair, *, shares_cut: bool) -> Judgement | None:
        """Recompute both values, and judge them; see `compare`, which keeps the result."""
        key, eager_key, other_region, eager_region = pair
        eager_step, other = self.eager.step, self.other
        other_inputs = {
            k: eager_step.value(self.agreeing[k]) if k in self.agreeing else other.value(k)
            for k in other_region.boundary
        }
        eager_inputs = {k: eager_step.value(k) for k in eager_region.boundary}
        sides = (
            _Formula(eager_step, eager_key, eager_inputs, eager_region.nodes, self._budget),
            _Formula(other, key, other_inputs, other_region.nodes, self._budget),
        )
        value = eager_step.value(eager_key)
        try:
            local = sides[1].evaluate()
        except Exception:
            return None
        if not isinstance(local, torch.Tensor) or local.shape != value.shape:
            return None
        # A judgement reports the boundary as values that agree. Inputs correspond by name, so their
        # values may differ.
        boundary = tuple(
            k
            for k in other_region.boundary
            if k in self.agreeing and is_close(eager_step.value(self.agreeing[k]), other.value(k))
        )
        other_region = Region(boundary, other_region.nodes)
        verdict = Judgement(key, eager_key, "rounding", other_region, eager_region)
        if is_same(local, value):
            return verdict
        try:
            exact, exact_other = (side.evaluate(double=True) for side in sides)
        except Exception:  # an op without float64
            exact = exact_other = None
        # Integers, bools and values with another dtype have no rounding: any difference counts,
        # unless the formulas agree in float64, so that only their inputs were rounded.
        if not value.is_floating_point() or local.dtype != value.dtype:
            if is_dense(exact) and is_dense(exact_other) and bool(torch.equal(exact, exact_other)):
                return verdict
            kind: Kind = "random" if self._is_random(key, eager_key) else "formula"
            if self._reads_other_operands(pair):
                kind = "operand"
            size = _relative(distance(value, local), value)
            return replace(verdict, kind=kind, size=size, ratio=math.inf)
        if not is_dense(exact) or not is_dense(exact_other) or exact.shape != exact_other.shape:
            return None
        resolution = self._resolution(value.dtype, verdict, shares_cut=shares_cut)
        difference, eager_error = distance(exact, exact_other), distance(value, exact)
        # `floor` is the rounding to expect. Eager's own error may be 0 by chance, but rounding to
        # the nearest number may move a value by half of the resolution. (1e-300 replaces 0, by
        # which nothing can be divided.)
        floor = max(eager_error, resolution * max(scale(value), 1e-300) * 0.5, 1e-300)
        # From equal values, formulas that are equal in exact arithmetic differ in float64 only by
        # the rounding of float64.
        least = 1e-9 * max(scale(exact), 1e-300) if shares_cut else _MIN_RATIO_UNSHARED * floor
        if difference > least and difference / floor > _MIN_RATIO:
            # Only now, because it runs both formulas once more.
            floor = max(floor, _magnified_rounding(sides, (exact, exact_other), resolution))
        ratio = difference / floor
        if difference > least and ratio > _MIN_RATIO:
            verdict = replace(verdict, kind=self._kind_of(pair, ratio))
        reference = exact if scale(exact) else value
        return replace(
            verdict,
            size=_relative(difference, reference),
            rounding=_relative(eager_error, reference),
            ratio=ratio,
        )

    def _kind_of(self, pair: Pair, ratio: float) -> Kind:
        """Return in which way two floating-point values differ, if not by rounding."""
        if self._reads_other_operands(pair):
            return "operand"
        if ratio > _MIN_RATIO_RANDOM and self._is_random(pair.key, pair.eager_key):
            return "random"
        return "state" if self._same_call(pair) else "formula"

    def _resolution(self, dtype: torch.dtype, verdict: Judgement, *, shares_cut: bool) -> float:
        """Return the coarsest resolution to which two values of a dtype may have been rounded."""
        dtypes = {dtype}
        regions = (self.other, verdict.region), (self.eager.step, verdict.eager_region)
        # A single op on each side, from equal values, rounds only its result.
        if not shares_cut or sum(len(part.nodes) for _, part in regions) > 2:
            for step, part in regions:
                values = (step.value(k) for k in (*part.nodes, *part.boundary))
                dtypes.update(v.dtype for v in values if isinstance(v, torch.Tensor))
        return max(torch.finfo(d).eps for d in dtypes if d == dtype or d in LOWER_DTYPES)

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

        Walks back from both values in parallel, until their operands agree or have another value.
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
                # The two ops read different values of eager's. That is another operand only if the
                # other step could have read eager's.
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
    """Count the ops of a region by name, without views, which compute nothing."""
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
        # The outputs of the target correspond by path. That is certain, unlike positions in graphs.
        self._returned_pairs = {**dict(_pair_returned(self._eager, self._other)), **returned}
        # Eager nodes whose values the other step does not compute, by op. A suspect without a
        # partner may be one of them, computed wrongly.
        self._missing: dict[str, list[Key]] = {}
        for key in self._eager.order:
            if judge.eager.first_equal(key) not in judge.shared and is_dense(
                self._eager.value(key)
            ):
                self._missing.setdefault(self._eager.node(key).op, []).append(key)

    def judged(self, skipped: Mapping[Key, object]) -> Iterator[Judgement]:
        """Yield a judgement for each value that differs from eager by more than rounding.

        Args:
            skipped: has the nodes not to judge as keys.
        """
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
        """Judge a value against its candidates, the likeliest first.

        Returns:
            The judgement of the first candidate that differs from the value. `None` if a candidate
            matches, if none can be compared, or if all results agree in spite of the value.
        """
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
        if not cut:  # eager has no value to recompute it from
            return None
        first_different: Judgement | None = None
        for eager in candidates:
            value = self._eager.value(eager)
            if not is_dense(value) or value.shape != self._other.value(key).shape:
                continue
            eager_region = self._eager_region(eager, key)
            if eager_region is None:
                continue
            cut_eager = {first(k) for k in eager_region.boundary}
            # If each side starts from a value that the other side does not use, the candidate is
            # probably another value. Inputs alone do not show that: every region ends at them.
            moved = not (
                cut_eager <= cut
                or cut <= cut_eager
                or all(map(self._eager.is_input, cut ^ cut_eager))
            )
            if moved and not self._may_move(key, eager):
                continue
            pair = Pair(key, eager, other_region, eager_region)
            verdict = judge.compare(pair, shares_cut=cut == cut_eager)
            if verdict is None:
                continue
            if not verdict.is_strong:
                # A match, so an earlier candidate is another value, unless the position in the
                # output identifies it.
                is_returned = (
                    first_different and self._returned_pairs.get(key) == first_different.eager
                )
                return first_different if is_returned else None
            first_different = first_different or verdict
        return first_different

    def _may_move(self, key: Key, eager: Key) -> bool:
        """Return True if the matcher or the position in the output identifies the two values."""
        if self._returned_pairs.get(key) == eager:
            return True
        same_op = self._eager.node(eager).op == self._other.node(key).op
        return self._paired.get(key) == eager and same_op

    def _eager_region(self, eager: Key, key: Key) -> Region | None:
        """Return the region of an eager value, from values that are computed before `key` too.

        Returns:
            `None` if it is too large.
        """
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
        # A partner with a value that the other step computes elsewhere is no candidate, unless the
        # op is the same: x * 1.0 has the value of x, which another node may agree with.
        if partner is not None and (
            self._judge.eager.first_equal(partner) not in self._judge.shared
            or self._eager.node(partner).op == self._other.node(key).op
        ):
            candidates.append(partner)
        original = original_op(self._other.fx(key))
        # Inside a decomposition, eager has no op of its own for the value.
        if self._ends_decomposition(key, original):
            for op in dict.fromkeys((original, self._other.node(key).op)):
                candidates += [
                    k
                    for k in self._missing.get(op, ())
                    if self._eager.kind(k) == self._other.kind(key)
                ]
                # One of several results of the op.
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
        """Return True if each path from a value to an output has a value that agrees.

        The value is then computed by a formula that is equivalent to eager's.
        """
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
