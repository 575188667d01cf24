"""Bisection over captures to the compiler stage with the difference, and the walk within it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..errors import CaptureError
from ..graph.divergence import Divergence, Stage, headline
from ..graph.model import Node
from ..mechanisms.protocol import Mechanism
from ..mechanisms.step import EagerRun
from ..mechanisms.torch_compile import Aot, Dynamo, Inductor
from .judge import Judgement, original_op
from .pairs import PairedValues
from .sides import CompiledSide, eager_side
from .valued import Key, ValuedStep
from .values import Budget, NotFollowedError, described, is_dense
from .walk import Walk, walk

_SURE_NODES = 8
_SURE_RATIO = 1000.0
_DRAWS_AS_EAGER = {"fallback_random": True}


def stages_of(mechanism: Mechanism) -> list[tuple[Stage, Mechanism]]:
    """Return the stages up to the mechanism's own whose graphs can run op by op.

    Raises:
        CaptureError: if the mechanism does not compile in these stages.
    """
    if isinstance(mechanism, Dynamo):
        return [("aot", Aot(dynamic=mechanism.dynamic, fullgraph=mechanism.fullgraph))]
    if isinstance(mechanism, Inductor):
        options = {**(mechanism.options or {}), **_DRAWS_AS_EAGER}
        passes = replace(mechanism, codegen=False, options=options)
        lower = Aot(mechanism.dynamic, mechanism.fullgraph, "min_cut", "inductor")
        return [*stages_of(lower), ("passes", passes)]
    if not isinstance(mechanism, Aot):
        raise CaptureError(
            f"first_difference() is not available via {mechanism.name!r}: capture the same call "
            "via 'aot', 'inductor' or 'dynamo'"
        )
    stages: list[tuple[Stage, Mechanism]] = [
        ("aot", replace(mechanism, decompositions=None, partition="default"))
    ]
    if mechanism.decompositions is not None:
        stages.append(("decomposition", replace(mechanism, partition="default")))
    if mechanism.partition != "default":
        stages.append(("partition", mechanism))
    return stages


@dataclass
class Search:
    """A search for the first difference.

    Args:
        again: runs the target from the state of its capture.
        mechanism: the mechanism of the capture.
        expected: outcome of an eager run.
        differs: returns True for an outcome that differs from the expected one.
        budget: the limits.

    Attributes:
        checked: the last checked stage.
        captures: number of captures made.
    """

    again: EagerRun
    mechanism: Mechanism
    expected: Any
    differs: Callable[[Any], bool]
    budget: Budget
    checked: Stage = "eager"
    captures: int = 0

    def run(self) -> Divergence:
        """Return the first difference, or the progress of the search if it ended early."""
        stages = stages_of(self.mechanism)
        try:
            config = torch_private.get("inductor_config")
            with config.patch(**_DRAWS_AS_EAGER):
                return self._follow(stages)
        except NotFollowedError as error:
            # torch.fx's Interpreter appends a traceback to the message of an inner exception.
            return Divergence(self.checked, reason=str(error).partition("\n")[0])
        except Exception as error:  # torch refuses: report no node
            text = " ".join(str(error).split())[:300]
            reason = f"the comparison raised {type(error).__name__}: {text}"
            return Divergence(self.checked, reason=reason)

    def _follow(self, stages: Sequence[tuple[Stage, Mechanism]]) -> Divergence:
        other_devices = {t.device.type for t in self.again.invocation.named.all_tensors()} - {"cpu"}
        if other_devices:
            raise NotFollowedError(f"values on {other_devices.pop()!r} cannot be compared yet")
        eager = eager_side(self.again, self.expected, self.budget)
        sides: list[ValuedStep | None] = [None] * len(stages)

        def agrees(number: int) -> bool:
            self.budget.check()
            side = self._captured(stages[number][1])
            sides[number] = side.step
            self.checked = stages[number][0]
            return not self.differs(side.outcome)

        low, high = -1, len(stages) - 1
        if agrees(high):
            self._agrees_at(stages[high][0], eager)
        while high - low > 1:
            middle = (low + high) // 2
            if agrees(middle):
                low = middle
            else:
                high = middle
        self.checked = stage = stages[high][0]
        if stage == "aot":
            stage = self._of_trace()
            self.checked = stage
        if low_precision := _low_precision(eager):
            self._not_in_low_precision(low_precision)
        before, after = eager if low < 0 else sides[low], sides[high]
        assert before is not None
        assert after is not None
        outcome = walk(before, after, self.budget)
        if not outcome.accepted and before is not eager:
            before, outcome = eager, walk(eager, after, self.budget)
        return _divergence(stage, outcome, before, after, eager)

    def _captured(self, mechanism: Mechanism) -> CompiledSide:
        self.captures += 1
        return CompiledSide(self.again, mechanism, self.budget)

    def _agrees_at(self, stage: Stage, eager: ValuedStep) -> None:
        """End the search because the last stage that can be followed agrees.

        Raises:
            NotFollowedError: always.
        """
        if isinstance(self.mechanism, Inductor) and self.mechanism.codegen:
            self.checked = "codegen"
            advice = self._rounding_as_eager() if _low_precision(eager) else ""
            raise NotFollowedError(
                "the graphs match up to inductor's passes, and kernels cannot be compared "
                f"yet{advice}"
            )
        if isinstance(self.mechanism, Dynamo):
            raise NotFollowedError("AOTAutograd's graph of the same step matches the eager run")
        raise NotFollowedError(
            "the graphs match the eager run when they run op by op, with eager's random numbers"
        )

    def _not_in_low_precision(self, dtype: str) -> None:
        """End the search because eager's own rounding is too large for the judge.

        Raises:
            NotFollowedError: always.
        """
        advice = self._rounding_as_eager() if isinstance(self.mechanism, Inductor) else ""
        raise NotFollowedError(f"values of {dtype} cannot be judged yet{advice}")

    def _rounding_as_eager(self) -> str:
        """Return advice if inductor agrees once it rounds between ops like eager."""
        mechanism = self.mechanism
        assert isinstance(mechanism, Inductor)
        options = {**(mechanism.options or {}), **_DRAWS_AS_EAGER, "emulate_precision_casts": True}
        self.captures += 1
        rounding = replace(mechanism, options=options)
        outcome = self.again.run(lambda step: rounding.capture(step, CanonicalNames()))
        if self.differs(outcome):
            return ""
        return (
            '. With options={"emulate_precision_casts": True}, which rounds between ops as '
            "eager does, the run matches"
        )

    def _of_trace(self) -> Stage:
        """Return "dynamo" if Dynamo's graph, run with autograd, already differs."""
        self.budget.check()
        if isinstance(self.mechanism, Dynamo):
            return "dynamo"
        assert isinstance(self.mechanism, Aot | Inductor)
        traced = Dynamo(dynamic=self.mechanism.dynamic, fullgraph=self.mechanism.fullgraph)
        self.captures += 1
        try:
            outcome = self.again.run(lambda step: traced.capture(step, CanonicalNames()))
        except Exception:
            return "aot"
        return "dynamo" if self.differs(outcome) else "aot"


def _low_precision(step: ValuedStep) -> str:
    """Return a dtype below float32 in which a step computes, "" if there is none."""
    for key in step.order:
        value = step.value(key)
        if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
            return str(value.dtype).removeprefix("torch.")
    return ""


def _divergence(
    stage: Stage, outcome: Walk, before: ValuedStep, after: ValuedStep, eager: ValuedStep
) -> Divergence:
    if not outcome.accepted:
        if outcome.rejected:
            number = outcome.rejected
            reason = (
                f"with eager's value instead of {'the candidate' if number == 1 else 'candidates'} "
                f"({number}), later values still differ"
            )
        else:
            reason = "all compared values have the same formula, up to rounding"
        return Divergence(stage, reason=reason)
    differences = [
        _of_verdict(stage, verdict, outcome, before, after, eager) for verdict in outcome.accepted
    ]
    return replace(differences[0], more=tuple(differences[1:]))


def _of_verdict(
    stage: Stage,
    verdict: Judgement,
    outcome: Walk,
    before: ValuedStep,
    after: ValuedStep,
    eager: ValuedStep,
) -> Divergence:
    region = [key for key in verdict.region.nodes if key in after.position_of]
    nodes = tuple(after.node(key) for key in region)
    eager_keys = (
        verdict.eager_region.nodes if before is eager else _find_eager_nodes(verdict, before, eager)
    )
    eager_nodes = tuple(eager.node(key) for key in eager_keys)
    eager_nodes = eager_nodes or tuple(before.node(key) for key in verdict.eager_region.nodes)
    # An op that is missing has its place in the eager run only.
    named = headline(eager_nodes, nodes)
    places = [*reversed(named[1]), *reversed(named[0]), after.node(verdict.key), *reversed(nodes)]
    one_op = len({(original_op(after.fx(key)), after.fx(key).meta.get("seq_nr")) for key in region})
    small = len(nodes) <= _SURE_NODES or one_op == 1
    value, other_value = before.value(verdict.eager), after.value(verdict.key)
    return Divergence(
        stage,
        verdict.kind if verdict.kind != "rounding" else "precision",
        nodes,
        eager_nodes,
        next((node.module for node in places if node.module), ""),
        after.graphs[verdict.key[0]].graph.name,
        source=_source(places),
        size=verdict.size,
        rounding=verdict.rounding,
        sure=outcome.settled and small and verdict.ratio > _SURE_RATIO,
        inputs=tuple(dict.fromkeys(key[1] for key in verdict.region.edge)),
        statistics=(described(value), described(other_value))
        if is_dense(other_value)
        else ("", ""),
        drawn=after.graphs[verdict.key[0]].graph,
    )


def _source(nodes: Sequence[Node]) -> Any:
    return next((node.source for node in nodes if node.source is not None), None)


def _find_eager_nodes(verdict: Judgement, before: ValuedStep, eager: ValuedStep) -> tuple[Key, ...]:
    """Return the eager nodes with the values of nodes of a later stage that agrees."""
    keys: dict[Key, None] = {}
    values = PairedValues(eager)
    for key in verdict.eager_region.nodes:
        value, node = before.value(key), before.node(key)
        equal_values = (
            [k for k in values.candidates(value) if k in eager.position_of]
            if is_dense(value)
            else []
        )
        if equal_values:
            nearest = min(equal_values, key=lambda k: eager.node(k).module != node.module)
            if eager.node(nearest).op == "operator.getitem":
                keys.update(dict.fromkeys(eager.operands(nearest)))
            keys[nearest] = None
    return tuple(sorted(keys, key=lambda key: eager.position_of.get(key, -1)))
