"""Search for the first difference: bisect over compiler stages, then walk the stage found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..graph.divergence import Divergence, Stage, headline, nodes_to_show
from ..graph.model import Node, Ref
from ..graph.text import format_arg, format_key
from ..mechanisms.protocol import Mechanism
from ..mechanisms.step import EagerRun
from ..mechanisms.torch_compile import NEEDED, Aot, Dynamo, Inductor, PassRecorder
from ..words import counted, listed
from .judge import Judgement, operand_of_view, original_op
from .pairs import PairedValues, Region, pair_outputs
from .sides import CompiledSide, eager_side
from .valued import Key, ValuedStep
from .values import Budget, NotFollowedError, format_statistics, is_dense
from .walk import Walk, walk

_MAX_SURE_NODES = 8
"""Maximum number of nodes of a proven difference, unless they all come from one op."""
_MIN_SURE_RATIO = 1000.0
"""Minimum size of a proven difference, in multiples of eager's own rounding."""
_DRAWS_AS_EAGER = {"fallback_random": True}
"""Inductor's option to draw eager's random numbers. By default, it has a generator of its own."""


def stages_of(mechanism: Mechanism) -> list[tuple[Stage, Mechanism]]:
    """Return the compiler stages of a mechanism whose graphs can run op by op, in order.

    Each stage has a name and a mechanism that compiles up to it. A stage in which `mechanism` does
    nothing, such as decompositions without a table, is left out.
    """
    if isinstance(mechanism, Dynamo):
        # Dynamo's own graph cannot run op by op. `Search._traced_stage` tells them apart.
        return [("aot", Aot(dynamic=mechanism.dynamic, fullgraph=mechanism.fullgraph))]
    if isinstance(mechanism, Inductor):
        options = {**(mechanism.options or {}), **_DRAWS_AS_EAGER}
        passes = replace(mechanism, codegen=False, options=options)
        # Inductor's partitioner and its table of decompositions.
        lower = Aot(mechanism.dynamic, mechanism.fullgraph, "min_cut", "inductor")
        return [*stages_of(lower), ("passes", passes)]
    assert isinstance(mechanism, Aot)  # `Capture.first_difference` refuses other mechanisms
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
        eager_run: runs the target from the state of its capture.
        mechanism: the mechanism of the capture.
        expected: outcome of an eager run.
        differs: returns True for an outcome that differs from the expected one.
        budget: the limits.

    Attributes:
        checked: the last checked stage.
    """

    eager_run: EagerRun
    mechanism: Mechanism
    expected: Any
    differs: Callable[[Any], bool]
    budget: Budget
    checked: Stage = "eager"

    def run(self) -> Divergence:
        """Return the first difference, or the reason why the search ended without one."""
        stages = stages_of(self.mechanism)
        try:
            config = torch_private.get("inductor_config")
            with config.patch(**_DRAWS_AS_EAGER):
                return self._follow(stages)
        except NotFollowedError as error:
            # torch.fx.Interpreter appends a traceback to the message of an exception in a node.
            return Divergence(self.checked, reason=str(error).partition("\n")[0])
        except Exception as error:  # an error in torch must not hide the failed check
            text = " ".join(str(error).split())[:300].rstrip(".")
            reason = f"the comparison raised {type(error).__name__}: {text}"
            return Divergence(self.checked, reason=reason)

    def _follow(self, stages: Sequence[tuple[Stage, Mechanism]]) -> Divergence:
        """Find the first of some stages that differs from eager, and walk it.

        Raises:
            NotFollowedError: if no stage differs, or the difference cannot be found.
        """
        other_devices = {t.device.type for t in self.eager_run.invocation.named.all_tensors()} - {
            "cpu"
        }
        if other_devices:
            raise NotFollowedError(f"values on {other_devices.pop()!r} cannot be compared yet")
        eager = eager_side(self.eager_run, self.expected, self.budget)
        # The runs so far, by the number of the stage; -1 is the eager run.
        sides: dict[int, tuple[ValuedStep, Any]] = {-1: (eager, self.expected)}

        def agrees(number: int) -> bool:
            """Run through a stage, add the run to `sides`, and return True if it matches eager."""
            self.budget.check()
            side = CompiledSide(self.eager_run, stages[number][1], self.budget)
            sides[number] = side.step, side.outcome
            self.checked = stages[number][0]
            return not self.differs(side.outcome)

        low, high = -1, len(stages) - 1
        if agrees(high):
            self._stop_without_difference(eager)  # raises
        # Stage `low` agrees, and stage `high` differs.
        while high - low > 1:
            middle = (low + high) // 2
            if agrees(middle):
                low = middle
            else:
                high = middle
        self.checked = stage = stages[high][0]
        if stage == "aot":
            self.checked = stage = self._traced_stage()
        if low_precision := _low_precision(eager):
            self._stop_in_low_precision(low_precision)  # raises
        after = sides[high]
        before, outcome = eager, Walk()
        # The stage before is the most similar. If a walk from it proves nothing, walk from eager.
        for number in dict.fromkeys((low, -1)):
            if not outcome.accepted:
                before = sides[number][0]
                returned = pair_outputs(*sides[number], *after)
                outcome = walk(before, after[0], returned, self.budget)
        divergence = _describe_walk(stage, outcome, before, after[0], eager)
        if stage != "passes":
            return divergence
        return replace(divergence, pass_name=self._find_pass(stages[high][1]))

    def _find_pass(self, mechanism: Mechanism) -> str:
        """Return the name of the first pass after which the run differs, "" if unknown.

        Like torch's bisector, run the step again with only the first passes.
        """

        def run_with(limit: int | None) -> tuple[PassRecorder, bool]:
            """Run with the first `limit` passes. Return their record, and True if it differs."""
            self.budget.check()
            recorder = PassRecorder(limit)
            with torch_private.on_passes(recorder):
                outcome = self.eager_run.run(lambda s: mechanism.capture(s, CanonicalNames()))
            return recorder, self.differs(outcome)

        try:
            recorder, differs = run_with(None)
            # Positions of passes from 1, which are also limits: each pass once, in order.
            changing = list(dict.fromkeys(recorder.changing))
            if not differs or not changing:
                return ""
            if run_with(0)[1]:  # the cause is one of the passes that no limit leaves out
                names = [recorder.applied[n - 1] for n in changing]
                needed = [name for name in names if name.startswith(NEEDED)]
                return needed[0] if len(needed) == 1 else ""
            # With all passes up to number `high` of those that change a graph, the run differs.
            low, high = 0, len(changing) - 1
            while low < high:
                middle = (low + high) // 2
                if run_with(changing[middle])[1]:
                    high = middle
                else:
                    low = middle + 1
            return recorder.applied[changing[low] - 1]
        except Exception:  # time ran out, or inductor cannot do without the passes left out
            return ""

    def _stop_without_difference(self, eager: ValuedStep) -> None:
        """End the search because the last stage that can run op by op agrees.

        Raises:
            NotFollowedError: always.
        """
        if isinstance(self.mechanism, Inductor) and self.mechanism.codegen:
            self.checked = "codegen"
            advice = self._rounding_advice() if _low_precision(eager) else ""
            raise NotFollowedError(
                "the results of the graphs match up to inductor's passes, and kernels cannot be "
                f"compared yet{advice}"
            )
        if isinstance(self.mechanism, Dynamo):
            raise NotFollowedError("AOTAutograd's graph of the same step matches the eager run")
        raise NotFollowedError(
            "the graphs match the eager run when they run op by op, with eager's random numbers"
        )

    def _stop_in_low_precision(self, dtype: str) -> None:
        """End the search because eager's rounding is too large to tell it from a fault.

        Raises:
            NotFollowedError: always.
        """
        advice = self._rounding_advice() if isinstance(self.mechanism, Inductor) else ""
        raise NotFollowedError(f"rounding in {dtype} is too large to tell it from a fault{advice}")

    def _rounding_advice(self) -> str:
        """Return advice if inductor matches eager when it also rounds between ops, else ""."""
        mechanism = self.mechanism
        assert isinstance(mechanism, Inductor)
        options = {**(mechanism.options or {}), **_DRAWS_AS_EAGER, "emulate_precision_casts": True}
        rounding = replace(mechanism, options=options)
        outcome = self.eager_run.run(lambda step: rounding.capture(step, CanonicalNames()))
        if self.differs(outcome):
            return ""
        return (
            '. With options={"emulate_precision_casts": True}, which rounds between ops as '
            "eager does, the run matches"
        )

    def _traced_stage(self) -> Stage:
        """Return "dynamo" if Dynamo's graph, run with autograd, already differs, else "aot"."""
        self.budget.check()
        if isinstance(self.mechanism, Dynamo):
            return "dynamo"
        assert isinstance(self.mechanism, Aot | Inductor)
        traced = Dynamo(dynamic=self.mechanism.dynamic, fullgraph=self.mechanism.fullgraph)
        try:
            outcome = self.eager_run.run(lambda step: traced.capture(step, CanonicalNames()))
        except Exception:  # Dynamo's graph cannot run alone, so nothing is known about it
            return "aot"
        return "dynamo" if self.differs(outcome) else "aot"


def _low_precision(step: ValuedStep) -> str:
    """Return a dtype below float32 in which a step computes, "" if there is none."""
    for key in step.order:
        value = step.value(key)
        if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
            return str(value.dtype).removeprefix("torch.")
    return ""


def _describe_walk(
    stage: Stage, outcome: Walk, before: ValuedStep, after: ValuedStep, eager: ValuedStep
) -> Divergence:
    """Return the outcome of a walk from `before` to `after` as a `Divergence`."""
    if not outcome.accepted:
        if outcome.rejected:
            candidates = counted(outcome.rejected, "candidate op")
            reason = f"later values still differ with eager's values for {candidates}"
        else:
            reason = "no op was found whose result differs from eager's by more than rounding"
        return Divergence(stage, reason=reason)
    differences = [
        _describe_verdict(stage, verdict, outcome, before, after, eager)
        for verdict in outcome.accepted
    ]
    return replace(differences[0], more=tuple(differences[1:]))


def _describe_verdict(
    stage: Stage,
    verdict: Judgement,
    outcome: Walk,
    before: ValuedStep,
    after: ValuedStep,
    eager: ValuedStep,
) -> Divergence:
    """Return one accepted judgement of a walk from `before` to `after` as a `Divergence`."""
    assert verdict.kind != "rounding"
    region = verdict.region.nodes
    nodes = tuple(after.node(key) for key in region)
    eager_keys = certain = verdict.eager_region.nodes
    if before is not eager:  # the walk began at a compiler stage, whose nodes eager does not have
        eager_keys, certain = _find_eager_nodes(verdict, before, eager)
    eager_nodes = tuple(eager.node(key) for key in eager_keys)
    eager_nodes = eager_nodes or tuple(before.node(key) for key in verdict.eager_region.nodes)
    # Only the eager run has the module and the line of an op that is missing in the stage.
    named = headline(eager_nodes, nodes)
    # The first of these with a module, or a line, names it: first the nodes that the message names.
    places = [*reversed(named[1]), *reversed(named[0]), after.node(verdict.key), *reversed(nodes)]
    shown = nodes_to_show(eager_nodes, nodes)
    # Nodes of one decomposition have equal origins.
    origins = {(original_op(after.fx(key)), after.fx(key).meta.get("seq_nr")) for key in region}
    is_small = len(nodes) <= _MAX_SURE_NODES or len(origins) == 1
    value, other_value = before.value(verdict.eager), after.value(verdict.key)
    graph = after.graphs[verdict.key[0]].graph
    return Divergence(
        stage,
        verdict.kind,
        nodes,
        eager_nodes,
        module=next((node.module for node in places if node.module), ""),
        graph=graph.name,
        source=next((node.source for node in places if node.source is not None), None),
        size=verdict.size,
        rounding=verdict.rounding,
        sure=outcome.settled and is_small and verdict.ratio > _MIN_SURE_RATIO,
        inputs=tuple(
            dict.fromkeys(key[1] for key in _boundary_in_order_of_use(verdict.region, after))
        ),
        statistics=(format_statistics(value), format_statistics(other_value))
        if is_dense(other_value)
        else ("", ""),
        calls=(
            _format_calls(shown[0], eager, certain),
            _format_calls(shown[1], after, region),
        ),
        drawn=graph,
    )


def _boundary_in_order_of_use(region: Region, step: ValuedStep) -> Sequence[Key]:
    boundary = set(region.boundary)
    return [key for node in region.nodes for key in step.operands(node) if key in boundary]


_MAX_CALLS = 6
"""Maximum number of calls that a message shows of one side."""


def _format_calls(nodes: Sequence[Node], step: ValuedStep, keys: Sequence[Key]) -> tuple[str, ...]:
    """Format ops with their operands and constants.

    Args:
        nodes: the ops. If there are several, only ops with a number among their arguments are
            formatted.
        step: the step that contains the nodes.
        keys: the nodes that are certain. Nothing is formatted if another node is among `nodes`,
            or a node that is no call.
    """
    key_of = {step.node(key): key for key in keys}
    if not all(node.is_call and node in key_of for node in nodes):
        return ()
    if len(nodes) > 1:
        nodes = [node for node in nodes if _has_number(node)]
    return tuple(_format_call(key_of[node], step) for node in nodes[:_MAX_CALLS])


def _has_number(node: Node) -> bool:
    """Return True if an argument is a number. A bool is a flag."""
    arguments = (*node.args, *node.kwargs.values())
    return any(isinstance(arg, int | float) and not isinstance(arg, bool) for arg in arguments)


def _format_call(key: Key, step: ValuedStep) -> str:
    """Format a node as a call, with the inputs that its operands are views of."""
    node = step.node(key)
    arguments = [format_arg(arg) for arg in node.args]
    arguments += [f"{format_key(name)}={format_arg(arg)}" for name, arg in node.kwargs.items()]
    call = f"{node.op.removesuffix('.default')}({', '.join(arguments)})"
    # A view of a parameter is named after the module that reads it, not after the parameter.
    views = [
        f"{format_arg(Ref(name))} is a view of {format_arg(Ref(source[1]))}"
        for name in dict.fromkeys(node.refs)
        if (source := _viewed_input(step, step.resolve(key[0], name))) is not None
    ]
    return f"{call}, where {listed(views)}" if views else call


def _viewed_input(step: ValuedStep, key: Key) -> Key | None:
    """Return the input that a value is a view of, `None` if it is not a view of an input."""
    source = key
    while (operand := operand_of_view(step, source)) is not None:
        source = operand
    return source if source != key and step.is_input(source) else None


def _find_eager_nodes(
    verdict: Judgement, before: ValuedStep, eager: ValuedStep
) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Find the eager nodes that have the values of the `before` nodes of a judgement.

    Returns:
        The eager nodes, and those among them that are certain: no other eager node with the same
        op has the same value.
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
            # The first one of the same module, else the first one.
            nearest = min(equal_values, key=lambda k: eager.node(k).module != node.module)
            op = eager.node(nearest).op
            is_only = sum(eager.node(k).op == op for k in equal_values) == 1
            if op == "operator.getitem":  # name the op with several results too
                keys.update(dict.fromkeys(eager.operands(nearest), is_only))
            keys[nearest] = is_only
    nodes = sorted(keys, key=lambda key: eager.position_of.get(key, -1))
    return tuple(nodes), tuple(key for key in nodes if keys[key])
