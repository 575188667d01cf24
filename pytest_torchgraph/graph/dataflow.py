"""Def-use relations between ops, through projections and the bodies of higher-order ops.

A body is followed once per call, so that its inputs are the operands of that call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import CaptureError
from ..words import grouped
from .census import is_projection_node, operands_of, outputs_of, runs
from .higher_order import CONTROL_DEPS, KINDS, PREFIX, body_names, executed, leaves, ops_named
from .model import Graph, Node, Ref
from .step import InlinedStep

_Values: TypeAlias = list[int]
"""Producers of a value, by their number in `Dataflow.uses`."""
_Named: TypeAlias = dict[str, list[_Values]]
"""Producers of each result of each node."""

_BUFFERS = {"higher_order.flex_attention": 7, "higher_order.flex_attention_backward": 12}
"""Position of the argument that the first body of an attention takes in addition to the scores.

The last body takes the argument after it.
"""


@dataclass(slots=True, eq=False)
class Use:
    """A node in one call of its graph, and the ops that it uses.

    Attributes:
        node: the node; `None` for a value without a node, such as the scores of an attention.
        graph: the graph or body that contains the node.
        ops: names of the ops for which the node counts; empty for an input and for a wrapper.
        times: number of runs.
        uses: numbers of the ops whose results the node uses directly.
        leads: numbers of the ops through which the node's result depends on further ops. For a
            higher-order op, these are the ops whose results its bodies use, not all operands.
    """

    node: Node | None
    graph: Graph
    ops: tuple[str, ...]
    times: int
    uses: _Values = field(default_factory=list)
    leads: _Values = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the node's ops; for an input, its role."""
        return self.ops or (() if self.node is None else (self.node.op,))


class Dataflow:
    """Ops of a graph and its bodies, in order. The ops of a body appear once per call.

    Args:
        graph: the graph.
        step: the step of an inlined graph. Uses and errors have the captured nodes.

    Attributes:
        uses: the ops.
        carried: for each number that represents a loop-carried value, the values that it carries.
        numbers: for each op, its numbers.
        leads_ahead: True if an op may depend on later ops: a call on the ops of its body.

    Raises:
        CaptureError: for a higher-order op whose bodies cannot be followed.
    """

    def __init__(self, graph: Graph, step: InlinedStep):
        self.step = step
        self.uses: list[Use] = []
        self.carried: dict[int, _Values] = {}
        self.leads_ahead = False
        self.add_graph(graph, {}, 1)
        for use in self.uses if self.carried else ():
            use.uses = self._without_carried(use.uses)
            use.leads = self._without_carried(use.leads)
        self.numbers = grouped(
            (op, number) for number, use in enumerate(self.uses) for op in use.ops
        )

    def _without_carried(self, values: _Values) -> _Values:
        """Return values with each loop-carried value replaced by the values it carries."""
        sources: dict[int, None] = {}
        visited: set[int] = set()
        todo = list(reversed(values))
        while todo:
            number = todo.pop()
            if number in self.carried:
                if number not in visited:
                    visited.add(number)
                    todo += reversed(self.carried[number])
            else:
                sources[number] = None
        return list(sources)

    def add_value(self, graph: Graph, times: int) -> int:
        """Add a value that no node makes, and return its number."""
        self.uses.append(Use(None, graph, (), times))
        return len(self.uses) - 1

    def add_graph(self, graph: Graph, inputs: Mapping[str, _Values], times: int) -> _Named:
        """Add the ops of a graph, or of one call of a body.

        Args:
            graph: the graph.
            inputs: producers of the inputs of a body.
            times: number of runs.

        Returns:
            The producers of each result of each node; a single result has one entry.
        """
        values: _Named = {}
        for node in graph.nodes:
            if node.kind == "output":
                continue
            if node.name in inputs:
                values[node.name] = [inputs[node.name]]
            elif node.op == "operator.getitem" and is_projection_node(graph, node):
                results = values[node.refs[0]]
                index = node.args[1]
                if len(results) > 1 and isinstance(index, int) and 0 <= index < len(results):
                    values[node.name] = [results[index]]
                else:
                    values[node.name] = [_merge_values(results)]
            else:
                values[node.name] = self._add_node(graph, node, values, times)
        return values

    def _add_node(self, graph: Graph, node: Node, values: _Named, times: int) -> list[_Values]:
        """Add a node and the bodies that it runs. Return the producers of each of its results."""
        is_plain = not node.op.startswith(PREFIX)
        call = node if is_plain else executed(node)
        operands = [_values_of(values, name) for name in call.refs]
        # An op that reads a storage uses the op that wrote it in place, through no operand.
        for ref in node.after:
            if any(effect.kind == "mutates" for effect in graph.by_name[ref.name].effects):
                operands.append(_values_of(values, ref.name))
        used = operands[0] if len(operands) == 1 else _merge_values(operands)
        wraps = call.op == CONTROL_DEPS
        ops: tuple[str, ...] = ()
        if node.is_call and not wraps:
            ops = (call.op,) if is_plain else (call.op, *ops_named(node))
        number = len(self.uses)
        origin = self.step.origin(graph, node)
        use = Use(origin.node, origin.graph, ops, times, used, used)
        self.uses.append(use)
        if not (graph.subgraphs and node.is_call and runs(graph, node)):
            return [[number]]
        self.leads_ahead = True
        use.leads = []  # `_Bodies` sets it to what the bodies use
        results = _Bodies(self, graph, node, values, use).results()
        # `control_deps` computes nothing: only the ops of its body make its results.
        own_number = [] if wraps else [number]
        return [_merge_values([own_number, result]) for result in results] or [own_number]


@dataclass(eq=False)
class _Bodies:
    """Follows the bodies that a call runs.

    Args:
        flow: receives their ops.
        graph: contains the call.
        node: the call.
        values: producers of its operands.
        use: the call itself.
    """

    flow: Dataflow
    graph: Graph
    node: Node
    values: _Named
    use: Use

    def __post_init__(self) -> None:
        self.call = executed(self.node)
        self.runs = runs(self.graph, self.node)
        self.times = self.use.times * self.runs[0].counted

    def results(self) -> list[_Values]:
        """Return the producers of each result of the call; empty if the call alone makes them.

        Raises:
            CaptureError: if the inputs of the bodies are unknown.
        """
        bodies = [run.body for run in self.runs]
        match KINDS.get(self.call.op):
            case "call":
                return self._add_body(bodies[0], _producers_of(self.values, operands_of(self.node)))
            case "branch":  # (condition, *bodies, operands)
                self.use.leads = _merge_values(self._argument(0))
                operands = self._argument(len(self.call.args) - 1)
                branches = [self._add_body(body, operands) for body in bodies]
                # The branches of an edited text may return different numbers of values.
                return [_merge_values(results) for results in zip(*branches, strict=False)]
            case "map":  # (body, rows, other operands)
                return self._add_body(bodies[0], self._argument(1) + self._argument(2))
            case "scan":  # (body, initial state, rows, other operands)
                rest = self._argument(2) + self._argument(3)
                if self.runs[0].times == 1:  # no row passes its state to another one
                    return self._add_body(bodies[0], self._argument(1) + rest)
                state = self._new_carried(self._argument(1))
                results = self._add_body(bodies[0], state + rest)
                self._carry_results(state, results)
                return results
            case "tree":  # (body, rows, other operands); the body takes two rows, or results
                state = self._new_carried(self._argument(1) * 2)
                results = self._add_body(bodies[0], state + self._argument(2))
                self._carry_results(state, results * 2)
                return results
            case "loop":  # (condition, body, initial state, other operands)
                state = self._new_carried(self._argument(2))
                rest = self._argument(3)
                self.use.leads = _merge_values(self._add_body(bodies[0], state + rest))
                self._carry_results(state, self._add_body(bodies[1], state + rest))
                return state
            case "attention":
                self._add_attention(bodies)
                return []
            case "function":
                return self._add_function(*bodies)
            case "hook":  # the first input of the body is a gradient, which has no node
                self._add_body(bodies[0], [[], *_producers_of(self.values, operands_of(self.node))])
                return self._argument(0)
        raise self._unknown_error("the operands of this op are unknown")

    def _unknown_error(self, why: str) -> CaptureError:
        origin = self.flow.step.origin(self.graph, self.node)
        return CaptureError(
            f"patterns cannot follow values into the bodies of {self.call.op} "
            f"(%{origin.node.name} of {origin.graph.name}), because {why}: check its ops with "
            "assert_op_counts"
        )

    def _argument(self, position: int) -> list[_Values]:
        """Return the producers of each value in an argument of the call."""
        if position >= len(self.call.args):
            raise self._unknown_error(f"the call has only {len(self.call.args)} arguments")
        return _producers_of(self.values, leaves(self.call.args[position]))

    def _add_body(self, body: Graph, operands: Sequence[_Values]) -> list[_Values]:
        """Add the ops of a body, and return the producers of each value it returns."""
        if len(operands) != len(body.inputs):
            raise self._unknown_error(
                f"the call has {len(operands)} operands, but the body has {len(body.inputs)} inputs"
            )
        names = (node.name for node in body.inputs)
        inside = self.flow.add_graph(body, dict(zip(names, operands, strict=True)), self.times)
        return _producers_of(inside, outputs_of(body))

    def _new_carried(self, starts: Sequence[_Values]) -> list[_Values]:
        """Return new loop-carried values, which have the values `starts` in the first round."""
        numbers = [self.flow.add_value(self.graph, self.times) for _ in starts]
        self.flow.carried.update(zip(numbers, map(list, starts), strict=True))
        return [[number] for number in numbers]

    def _carry_results(self, state: Sequence[_Values], results: Sequence[_Values]) -> None:
        """Add the results of the body to the loop-carried values, for all later rounds.

        A scan returns the new state, then its outputs, which no later round takes.
        """
        for (number,), result in zip(state, results, strict=False):
            self.flow.carried[number] += result

    def _add_attention(self, bodies: Sequence[Graph]) -> None:
        """Add the bodies of an attention.

        The scores depend on query and key, in a backward on the value and the gradients too. The
        result depends on all operands and bodies.
        """
        first = next(k for k, arg in enumerate(self.call.args) if any(body_names(arg)))
        score = self.flow.add_value(self.graph, self.times)
        self.flow.uses[score].leads = _merge_values(
            v for k in range(2 if first == 3 else first) for v in self._argument(k)
        )
        self.use.leads = list(self.use.uses)
        for body in bodies:
            buffers = self._argument(_BUFFERS[self.call.op] + (body is bodies[-1]))
            # The other inputs are the score and its position.
            scores = [[score]] * (len(body.inputs) - len(buffers))
            self.use.leads += _merge_values(self._add_body(body, scores + buffers))

    def _add_function(self, forward: Graph, backward: Graph) -> list[_Values]:
        """Add the forward and the backward of an `autograd.Function`.

        The forward returns its results, then the saved values. The backward takes the saved values
        as its last inputs.
        """
        results = self._add_body(forward, _producers_of(self.values, leaves(self.call.args[2:])))
        (returned,) = next(node.args for node in forward.nodes if node.kind == "output")
        saved_count = (
            len(leaves(returned[1])) if isinstance(returned, tuple) and returned[1:] else 0
        )
        saved = results[len(results) - saved_count :]
        self._add_body(backward, [[]] * (len(backward.inputs) - saved_count) + saved)
        return results[: len(results) - saved_count]


def _values_of(values: _Named, name: str) -> _Values:
    """Return the producers of all results of a node; none for a body, which is a get_attr."""
    results = values.get(name, ())
    return results[0] if len(results) == 1 else _merge_values(results)


def _producers_of(values: _Named, operands: Iterable[object]) -> list[_Values]:
    return [_values_of(values, leaf.name) if isinstance(leaf, Ref) else [] for leaf in operands]


def _merge_values(values: Iterable[_Values]) -> _Values:
    return list(dict.fromkeys(number for numbers in values for number in numbers))
