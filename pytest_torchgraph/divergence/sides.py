"""Run a step eagerly and through a compiler stage, and keep the value of each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted
from ..convert.from_graph import ModuleBuilder
from ..convert.graph_modules import copied, runnable
from ..errors import CaptureError
from ..graph.inline import inline_regions
from ..graph.model import Graph
from ..graph.module_paths import numbered
from ..mechanisms.dispatch import Dispatch
from ..mechanisms.islands import run_instead
from ..mechanisms.protocol import Built, Captured, Mechanism
from ..mechanisms.step import EagerRun, Outcome, RandomState
from ..mechanisms.step import Step as Run
from ..mechanisms.torch_compile import draw_by_seeds
from .valued import ValuedGraph, ValuedStep
from .values import Budget, NotFollowedError, copied_value, is_same


def eager_side(eager_run: EagerRun, expected: Any, budget: Budget) -> ValuedStep:
    """Run the target eagerly, then run its ops one by one and keep their values.

    Args:
        eager_run: runs the target.
        expected: the outcome of an eager run, which the ops must reproduce.
        budget: the limits.

    Raises:
        NotFollowedError: if the ops cannot run one by one, or produce another outcome.
    """
    built, step = _record_ops(eager_run)
    named = eager_run.invocation.named
    tensors: dict[str, Any] = dict(built.constants)
    for tensor in named.all_tensors():
        input_name = named.tensors.get(id(tensor))
        if input_name is not None:
            tensors[input_name[1]] = tensor  # without its role
    tensors.update((f"tangent.{number}", grad) for number, grad in step.cotangents)
    # Copy each input once: forward and backward share it, as they do in the step.
    tensors = {name: copied_value(tensor) for name, tensor in tensors.items()}
    # The ops draw the numbers that the eager run drew.
    now = RandomState(named.generators)
    eager_run.random.restore()
    returned: list[torch.Tensor] = []
    try:
        sides = []
        graphs = numbered(built.graphs)
        read = {node.name for graph in graphs for node in graph.inputs}  # by any of the graphs
        for graph in graphs:
            valued = _runnable(graph)
            missing = [node.name for node in graph.inputs if node.name not in tensors]
            if missing:
                raise NotFollowedError(f"the eager run has no value for input {missing[0]}")
            # Do not copy saved values: a write in the backward must reach their views.
            outputs = valued.run([tensors[node.name] for node in graph.inputs], budget, read)
            tensors |= valued.live
            returned += [t for t in _flat(outputs) if isinstance(t, torch.Tensor)]
            sides.append(valued)
    finally:
        now.restore()
    for name, tensor in {**expected.outputs, **expected.grads}.items():
        if not any(is_same(tensor, value) for value in returned):
            raise NotFollowedError(
                f"the value of {name} in the eager run differs from the value that its ops compute "
                "one by one"
            )
    return ValuedStep(sides)


def _record_ops(eager_run: EagerRun) -> tuple[Built, Run]:
    """Run the target eagerly, and return the graphs of its ops and the step that ran.

    Raises:
        NotFollowedError: if the ops cannot be recorded.
    """
    recorded: list[tuple[Built, Run]] = []

    def how(step: Run) -> None:
        # `keep_constants`: the graphs run a second time, so they need the constants' values.
        captured = Dispatch().capture(step, CanonicalNames(), keep_constants=True)
        graphs = captured.graphs() if callable(captured.graphs) else captured.graphs
        assert isinstance(graphs, Built)
        recorded.append((graphs, step))

    try:
        eager_run.run(how)
    except CaptureError as error:
        # The rest of the message suggests remedies for a capture via 'dispatch'.
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise NotFollowedError(f"the eager run cannot be recorded op by op: {reason}") from error
    return recorded[0]


def _flat(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _runnable(graph: Graph) -> ValuedGraph:
    """Return a module for a graph that was recorded op by op.

    Raises:
        NotFollowedError: if the graph cannot be built as a module.
    """
    if graph.subgraphs:
        raise NotFollowedError("the bodies of a higher-order op cannot run a second time")
    # Without outputs for the saved values: a later graph reads them from `ValuedGraph.live`.
    builder = ModuleBuilder(replace(graph, saved=()), {})
    try:
        module = builder.build()
    except CaptureError as error:
        raise NotFollowedError(str(error).partition("\n")[0]) from None
    return ValuedGraph(graph, module, builder.nodes)


class CompiledSide:
    """A run through a compiler stage, with the graphs run op by op.

    The run takes place when the object is made.

    Args:
        eager_run: runs the target.
        mechanism: captures at this stage.
        budget: the limits.

    Attributes:
        outcome: results of the run.
        step: the graphs with their values.

    Raises:
        NotFollowedError: unless there is one forward and one backward, and each ran once.
    """

    def __init__(self, eager_run: EagerRun, mechanism: Mechanism, budget: Budget):
        sides: list[ValuedGraph] = []
        captured: list[Captured] = []

        def runner(converted: Converted) -> Callable[[list[Any]], Any]:
            # A boxed function clears the list of its arguments, so that they can be freed early.
            def run(args: list[Any]) -> Any:
                valued = _of_converted(converted)
                sides.append(valued)
                flat = list(args)
                args.clear()
                return valued.run(flat, budget)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        def how(step: Run) -> None:
            captured.append(mechanism.capture(step, CanonicalNames()))

        with run_instead(runner):
            self.outcome: Outcome = eager_run.run(how)
        if captured[0].incomparable:
            raise NotFollowedError(captured[0].incomparable)
        kinds = [valued.graph.kind for valued in sides]
        if kinds not in (["forward"], ["inference"], ["forward", "backward"]):
            raise NotFollowedError(
                f"{len(sides)} compiled graphs ran ({', '.join(kinds) or 'none'}), but only a "
                "single forward with its backward can be compared"
            )
        graphs = numbered(valued.graph for valued in sides)
        for valued, graph in zip(sides, graphs, strict=True):
            valued.graph = graph
        self.step = ValuedStep(_with_regions_inlined(sides, budget))


def _with_regions_inlined(sides: list[ValuedGraph], budget: Budget) -> list[ValuedGraph]:
    """Run the bodies of regions op by op too, unless they cannot run so.

    All graphs of a step are inlined, or none is, because the backward reads saved values by the
    names that they have in the forward.
    """
    inlined: list[ValuedGraph] = []
    for valued in sides:
        graph = inline_regions(valued.graph)
        if graph is not valued.graph:
            if valued.random:  # a second run would draw other numbers
                return sides
            try:
                valued = _runnable(graph)
                valued.run(copied_value(sides[len(inlined)].args), budget)
            except NotFollowedError:
                return sides
        inlined.append(valued)
    # Inlining may have renamed a value that the backward reads.
    nodes = inlined[0].graph.by_name
    saved = [node.name for node in inlined[-1].graph.inputs if node.op == "saved"]
    return inlined if all(name in nodes for name in saved) else sides


def _of_converted(converted: Converted) -> ValuedGraph:
    """Return a compiled graph with a copy of its module, whose nodes can run one by one."""
    module = runnable(copied(converted.owner))
    draw_by_seeds(module)
    by_name = {node.name: node for node in module.graph.nodes}
    nodes = {
        name_in_graph: by_name[name]
        for name, name_in_graph in converted.names.items()
        if name in by_name
    }
    nodes.setdefault("output", module.graph.output_node())
    return ValuedGraph(replace(converted.graph), module, nodes)
