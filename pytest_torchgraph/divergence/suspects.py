"""PairedValues without a partner that agrees, judged beside the values that they can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch.fx

from .budget import Budget
from .judge import Judge, Judgement
from .regions import Region, TooLargeError, region
from .valued import Key, ValuedStep
from .values import is_dense

_MOST_EAGER = 60


class Suspects:
    """The values of a step that agree with none of eager's.

    Args:
        judge: compares two values.
        paired: the nodes that the matcher of `diff` pairs, the eager one by the other.
        budget: the limits.
    """

    def __init__(self, judge: Judge, paired: Mapping[Key, Key], budget: Budget):
        self._judge = judge
        self._paired = paired
        self._budget = budget
        self._eager, self._other = judge.eager.step, judge.other
        self._returned = dict(_returned(self._eager, self._other))
        self._lost: dict[str, list[Key]] = {}
        for key in self._eager.order:
            if judge.eager.first(key) not in judge.shared and is_dense(self._eager.value(key)):
                self._lost.setdefault(self._eager.node(key).op, []).append(key)
        self._regions: dict[Key, Region | None] = {}

    def judged(self, skipped: Mapping[Key, object]) -> Iterator[Judgement]:
        """Yield the strong verdict of each value, as far as there is one."""
        for key in self._other.order:
            self._budget.check()
            if key in self._judge.agreeing or key in skipped:
                continue
            if not is_dense(self._other.value(key)) or self._other.is_drawn(key):
                continue
            verdict = self._of(key)
            if verdict is not None:
                yield verdict

    def _of(self, key: Key) -> Judgement | None:
        candidates = self._candidates(key)
        if not candidates or (key not in self._returned and self._is_another_way(key)):
            return None
        judge = self._judge
        try:
            own = region(self._other, key, judge.stops)
        except TooLargeError:
            return None
        first = judge.eager.first
        cut = {first(judge.agreeing[k]) for k in own.edge if k in judge.agreeing}
        if not cut:
            return None
        strongest: Judgement | None = None
        for eager in candidates:
            value = self._eager.value(eager)
            if not is_dense(value) or value.shape != self._other.value(key).shape:
                continue
            theirs = self._region_of(eager)
            if theirs is None:
                continue
            cut_eager = {first(k) for k in theirs.edge}
            mine = {k for k in cut if not self._eager.is_input(k)}
            its = {k for k in cut_eager if not self._eager.is_input(k)}
            moved = mine != its and not (cut_eager <= cut or cut <= cut_eager)
            if moved and not self._may_move(key, eager):
                continue
            verdict = judge.judged(key, eager, own, theirs, shares_cut=cut == cut_eager)
            if verdict is None:
                continue
            if not verdict.is_strong:  # this is the value: the candidates before it are others
                is_returned = strongest and self._returned.get(key) == strongest.eager
                return strongest if is_returned else None
            if moved:
                kind = "operand" if self._same_ops(own, theirs) else verdict.kind
                only = (tuple(sorted(cut - cut_eager)), tuple(sorted(cut_eager - cut)))
                verdict = replace(verdict, kind=kind, operands=only)
            strongest = strongest or verdict
        return strongest

    def _may_move(self, key: Key, eager: Key) -> bool:
        """Return True if the matcher or the position in the output says that two values are one."""
        if self._returned.get(key) == eager:
            return True
        same_op = self._eager.node(eager).op == self._other.node(key).op
        return self._paired.get(key) == eager and same_op

    def _same_ops(self, own: Region, theirs: Region) -> bool:
        ops = [self._other.node(k).op for k in own.nodes]
        return ops == [self._eager.node(k).op for k in theirs.nodes]

    def _region_of(self, eager: Key) -> Region | None:
        if eager not in self._regions:
            judge, returned = self._judge, eager in self._returned.values()
            try:
                self._regions[eager] = region(
                    self._eager,
                    eager,
                    lambda k: judge.stops_eager(k) and not (returned and k == eager),
                    _MOST_EAGER,
                )
            except TooLargeError:
                self._regions[eager] = None
        return self._regions[eager]

    def _candidates(self, key: Key) -> Sequence[Key]:
        """The values of eager's that a value can be, the likeliest first."""
        candidates: list[Key] = []
        if key in self._returned:
            candidates.append(self._returned[key])
        partner = self._paired.get(key)
        if partner is not None and (
            self._judge.eager.first(partner) not in self._judge.shared
            # x * 1.0 has the value of x, which another node may agree with.
            or self._eager.node(partner).op == self._other.node(key).op
        ):
            candidates.append(partner)
        original = original_op(self._other.fx(key))
        if self._ends_decomposition(key, original):
            for op in dict.fromkeys((original, self._other.node(key).op)):
                candidates += [k for k in self._lost.get(op, ()) if self._same_kind(k, key)]
                candidates += [
                    k
                    for k in self._lost.get("operator.getitem", ())
                    if self._eager.node(self._eager.operands(k)[0]).op == op
                ]
        return list(dict.fromkeys(candidates))

    def _same_kind(self, eager: Key, key: Key) -> bool:
        return self._eager.kind(eager) == self._other.kind(key)

    def _ends_decomposition(self, key: Key, original: str) -> bool:
        """Return True if a value leaves the nodes that an op was decomposed into."""
        node = self._other.fx(key)
        return not node.users or not all(
            user.op != "output"
            and original_op(user) == original
            and user.meta.get("seq_nr") == node.meta.get("seq_nr")
            for user in node.users
        )

    def _is_another_way(self, key: Key) -> bool:
        """Return True if all that follows from a value agrees: a formula of another form."""
        valued = self._other.graphs[key[0]]
        todo, seen, met = [self._other.fx(key)], set(), False
        while todo:
            for user in todo.pop().users:
                if user in seen:
                    continue
                seen.add(user)
                name = valued.name.get(user)
                if user.op == "output" or name is None:
                    return False
                if (key[0], name) in self._judge.agreeing:
                    met = True
                else:
                    todo.append(user)
        return met


def original_op(node: torch.fx.Node) -> str:
    """Return the op that a node was decomposed from, "" if unknown."""
    original = node.meta.get("original_aten")
    return "" if original is None else str(original)


def _returned(eager: ValuedStep, other: ValuedStep) -> Iterator[tuple[Key, Key]]:
    """Yield the returned values of a step with eager's: they correspond by position."""
    for number, valued in enumerate(other.graphs):
        for at, left in enumerate(eager.graphs):
            if eager.kind((at, "")) != other.kind((number, "")):
                continue
            pairs = left.graph.outputs, valued.graph.outputs
            if len(pairs[0]) == len(pairs[1]):
                for old, new in zip(*pairs, strict=True):
                    yield (number, new.name), (at, old.name)
