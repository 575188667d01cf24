"""Bisection over captures to the compiler stage with the difference, and the walk within it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..errors import CaptureError
from ..graph.divergence import Divergence, Stage, headline, nodes_to_show
from ..graph.model import Node, Ref
from ..graph.text import format_arg, format_key
from ..mechanisms.protocol import Mechanism
from ..mechanisms.step import EagerRun
from ..mechanisms.torch_compile import Aot, Dynamo, Inductor
from ..words import listed
from .judge import Judgement, operand_of_view, original_op
from .pairs import PairedValues, Region
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
    eager_keys = certain = verdict.eager_region.nodes
    if before is not eager:
        eager_keys, certain = _find_eager_nodes(verdict, before, eager)
    eager_nodes = tuple(eager.node(key) for key in eager_keys)
    eager_nodes = eager_nodes or tuple(before.node(key) for key in verdict.eager_region.nodes)
    # An op that is missing has its place in the eager run only.
    named = headline(eager_nodes, nodes)
    places = [*reversed(named[1]), *reversed(named[0]), after.node(verdict.key), *reversed(nodes)]
    shown = nodes_to_show(eager_nodes, nodes)
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
        inputs=tuple(dict.fromkeys(key[1] for key in _edge_in_order_of_use(verdict.region, after))),
        statistics=(described(value), described(other_value))
        if is_dense(other_value)
        else ("", ""),
        calls=(
            _format_calls(shown[0], eager, certain),
            _format_calls(shown[1], after, region),
        ),
        drawn=after.graphs[verdict.key[0]].graph,
    )


def _edge_in_order_of_use(region: Region, step: ValuedStep) -> Sequence[Key]:
    edge = set(region.edge)
    return [key for node in region.nodes for key in step.operands(node) if key in edge]


_MOST_CALLS = 6


def _format_calls(nodes: Sequence[Node], step: ValuedStep, keys: Sequence[Key]) -> tuple[str, ...]:
    """Format ops with their operands and constants.

    Args:
        nodes: the ops. Of several, only those with a number among their arguments are formatted.
        step: the step that contains the nodes.
        keys: the nodes that are certain. Nothing is formatted unless all nodes are.
    """
    key_of = {step.node(key): key for key in keys}
    if not all(node.is_call and node in key_of for node in nodes):
        return ()
    if len(nodes) > 1:
        nodes = [node for node in nodes if _has_number(node)]
    return tuple(_format_call(key_of[node], step) for node in nodes[:_MOST_CALLS])


def _has_number(node: Node) -> bool:
    arguments = (*node.args, *node.kwargs.values())
    return any(isinstance(arg, int | float) and not isinstance(arg, bool) for arg in arguments)


def _format_call(key: Key, step: ValuedStep) -> str:
    node = step.node(key)
    arguments = [format_arg(arg) for arg in node.args]
    arguments += [f"{format_key(name)}={format_arg(arg)}" for name, arg in node.kwargs.items()]
    call = f"{node.op.removesuffix('.default')}({', '.join(arguments)})"
    # The name of a view of a parameter has the module that reads it, not the parameter's.
    views = {
        name: source[1]
        for name in dict.fromkeys(node.refs)
        if (source := _viewed_input(step, step.resolve(key[0], name))) is not None
    }
    read = [
        f"{format_arg(Ref(name))} is a view of {format_arg(Ref(source))}"
        for name, source in views.items()
    ]
    return f"{call}, where {listed(read)}" if read else call


def _viewed_input(step: ValuedStep, key: Key) -> Key | None:
    """Return the input that a value is a view of, `None` if it is no view of an input."""
    source = key
    while (operand := operand_of_view(step, source)) is not None:
        source = operand
    return source if source != key and step.is_input(source) else None


def _source(nodes: Sequence[Node]) -> Any:
    return next((node.source for node in nodes if node.source is not None), None)


def _find_eager_nodes(
    verdict: Judgement, before: ValuedStep, eager: ValuedStep
) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Find the eager nodes with the values of nodes of a later stage that agrees.

    Returns:
        The nodes, and those of them whose op no other eager node with the same value has.
    """
    keys: dict[Key, bool] = {}
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
            op = eager.node(nearest).op
            is_only = sum(eager.node(k).op == op for k in equal_values) == 1
            if op == "operator.getitem":
                keys.update(dict.fromkeys(eager.operands(nearest), is_only))
            keys[nearest] = is_only
    nodes = sorted(keys, key=lambda key: eager.position_of.get(key, -1))
    return tuple(nodes), tuple(key for key in nodes if keys[key])
