"""Graphs with the values that their nodes had in one run."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeAlias

import torch
import torch.fx

from ..graph.model import Graph, Node, SubgraphRef, iter_refs
from ..mechanisms.step import cast_to_float64
from ..words import grouped
from .values import Budget, copied_value, in_double, is_dense, is_same

Key: TypeAlias = tuple[int, str]
"""Identifies a node of a step: number of its graph, name of the node."""


@dataclass
class ValuedGraph:
    """A graph, a module that runs it, and the values of one run.

    Attributes:
        graph: the graph.
        module: module that runs the graph.
        node: maps names of our nodes to fx nodes.
        args: arguments of the run.
        values: maps names of nodes to copies of their values.
        live: maps names of nodes to the tensors themselves, for a later graph that reads them.
        states: maps names of random nodes to the state of the RNG before the node ran.
    """

    graph: Graph
    module: torch.fx.GraphModule
    node: Mapping[str, torch.fx.Node]
    args: list[Any] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    live: dict[str, torch.Tensor] = field(default_factory=dict)
    states: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def name(self) -> dict[torch.fx.Node, str]:
        """Maps fx nodes to our node names."""
        return {node: name for name, node in self.node.items()}

    @cached_property
    def random(self) -> frozenset[str]:
        """Names of nodes that draw random numbers, also inside a higher-order op."""

        def draws(graph: Graph) -> bool:
            # `walk` includes the bodies inside a body.
            return any(e.kind == "random" for g in graph.walk() for n in g.nodes for e in n.effects)

        bodies = {body.name for body in self.graph.subgraphs if draws(body)}
        return frozenset(
            node.name
            for node in self.graph.nodes
            if any(effect.kind == "random" for effect in node.effects)
            or any(isinstance(arg, SubgraphRef) and arg.name in bodies for arg in node.args)
        )

    @contextlib.contextmanager
    def repeated_draw(self, name: str) -> Iterator[None]:
        """Run the body with the RNG state that a random node had in the recorded run."""
        state = self.states.get(name)
        if state is None:
            yield
            return
        now = torch.get_rng_state()
        torch.set_rng_state(state)
        try:
            yield
        finally:
            torch.set_rng_state(now)

    def for_replay(self) -> ValuedGraph:
        """Return a copy for a replay, with the values of this run."""
        duplicate = copy.copy(self)
        duplicate.values = dict(self.values)
        return duplicate

    def run(self, args: Sequence[Any], budget: Budget, read: Container[str] = ()) -> Any:
        """Run the graph, keep the value of each node, and return the outputs.

        Args:
            args: the values of its inputs.
            budget: the limits.
            read: names of nodes whose tensors are kept in `live`.
        """
        self.args = copied_value(list(args))
        with torch.no_grad():
            return _ValueRecorder(self, budget, read).run(*args)


class _ValueRecorder(torch.fx.Interpreter):
    """Interpreter that keeps the values of its nodes."""

    def __init__(self, valued: ValuedGraph, budget: Budget, read: Container[str]):
        super().__init__(valued.module)
        self._valued, self._read = valued, read
        self._budget = budget

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node and copy its value, because a later op may write to it."""
        valued, name = self._valued, self._valued.name.get(n)
        self._budget.check()
        if name in valued.random:
            valued.states[name] = torch.get_rng_state()
        value = super().run_node(n)
        if name is not None and n.op != "output":
            if name in self._read and n.op != "placeholder" and isinstance(value, torch.Tensor):
                valued.live[name] = value
            copied = copied_value(value)
            for leaf in copied if isinstance(copied, tuple | list) else (copied,):
                if isinstance(leaf, torch.Tensor):
                    self._budget.keep(leaf.nbytes)
            valued.values[name] = copied
        return value


class ValuedStep:
    """The graphs of one step as one dataflow: a saved value is the forward's node.

    Args:
        graphs: the forward, and the backward if it ran.

    Attributes:
        graphs: see the arguments.
        order: keys of all nodes except inputs and outputs, in execution order.
        position_of: maps keys to their position in `order`.
        changed: after a replay, the keys whose values are not those of the step before.
    """

    def __init__(self, graphs: Sequence[ValuedGraph]):
        self.graphs = graphs
        self.changed: frozenset[Key] = frozenset()
        # The forward's node for each name by which the backward may read a saved value.
        self._home: dict[str, Key] = {}
        self._operands: dict[Key, tuple[Key, ...]] = {}
        self.order: list[Key] = []
        for number, valued in enumerate(graphs):
            for node in valued.graph.nodes:
                if node.kind not in ("placeholder", "output"):
                    if valued.graph.kind != "backward":
                        self._home.setdefault(node.name, (number, node.name))
                    self.order.append((number, node.name))
        self.position_of = {key: position for position, key in enumerate(self.order)}

    def node(self, key: Key) -> Node:
        """Return the node of a key."""
        return self.graphs[key[0]].graph.by_name[key[1]]

    def fx(self, key: Key) -> torch.fx.Node:
        """Return the fx node of a key."""
        return self.graphs[key[0]].node[key[1]]

    def value(self, key: Key) -> Any:
        """Return the value of a node, `None` if it did not run."""
        return self.graphs[key[0]].values.get(key[1])

    def kind(self, key: Key) -> str:
        """Return the kind of a node's graph; forward and inference graphs have the same kind."""
        kind = self.graphs[key[0]].graph.kind
        return "forward" if kind == "inference" else kind

    def resolve(self, number: int, name: str) -> Key:
        """Return the key for a name in a graph; for a saved value, the forward's node."""
        node = self.graphs[number].graph.by_name.get(name)
        if node is not None and node.op == "saved" and node.kind == "placeholder":
            return self._home.get(name, (number, name))
        return number, name

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Return the nodes that a node reads or must follow, such as writes to its operands."""
        operands = self._operands.get(key)
        if operands is None:
            node = self.node(key)
            refs = [*iter_refs((node.args, node.kwargs)), *node.after]
            operands = tuple(self.resolve(key[0], ref.name) for ref in refs)
            self._operands[key] = operands
        return operands

    @cached_property
    def users(self) -> Mapping[Key, Sequence[Key]]:
        """Maps nodes to the nodes that have them as operands."""
        return grouped((operand, key) for key in self.order for operand in self.operands(key))

    def is_input(self, key: Key) -> bool:
        """Return True for an input of the step."""
        return self.node(key).kind == "placeholder"

    def is_random(self, key: Key) -> bool:
        """Return True for a node that draws random numbers."""
        return key[1] in self.graphs[key[0]].random

    def is_drawn(self, key: Key) -> bool:
        """Return True for a random node without operands, which a replay does not run again."""
        node = self.node(key)
        return self.is_random(key) and not any(True for _ in iter_refs((node.args, node.kwargs)))

    def inputs(self) -> list[Key]:
        """Return the keys of the inputs. Saved values are not inputs."""
        return [
            (number, node.name)
            for number, valued in enumerate(self.graphs)
            for node in valued.graph.inputs
            if node.op != "saved"
        ]

    def evaluate(
        self,
        target: Key,
        inputs: Mapping[Key, Any],
        nodes: Sequence[Key],
        budget: Budget,
        *,
        double: bool,
    ) -> Any:
        """Run some nodes on given values.

        Args:
            target: the node whose value is returned, one of `nodes`.
            inputs: the values that the nodes start from. They are not changed.
            nodes: the nodes to run, in order.
            budget: the limits.
            double: compute in float64.
        """
        values = {key: in_double(value) if double else value for key, value in inputs.items()}
        mutated = any(e.kind == "mutates" for key in nodes for e in self.node(key).effects)
        if mutated:
            values = copied_value(values)  # a later node of the region must see the write
        for key in nodes:
            budget.check()
            values[key] = self._call_node(
                key, values.__getitem__, double=double, copies=not mutated
            )
        return values[target]

    def replayed(self, instead: Mapping[Key, Any], budget: Budget) -> ValuedStep:
        """Replace the values of some nodes, and run the nodes that depend on them again.

        Args:
            instead: the new values. Nodes in it do not run.
            budget: the limits.

        Returns:
            A step that shares unchanged values with this step. `changed` contains the other keys.
        """
        step = copy.copy(self)
        step.graphs = [valued.for_replay() for valued in self.graphs]
        # If a node writes, run everything, on the tensors themselves: a kept value is a copy that
        # misses later writes to the tensor.
        writes = any(node.after for valued in self.graphs for node in valued.graph.nodes)
        live: dict[Key, Any] = {}
        changed: set[Key] = set()
        # Inputs and then nodes in order, so `changed` has the operands of a node before the node.
        for key in [*self.inputs(), *self.order]:
            is_given = key in instead or self.is_input(key) or self.is_drawn(key)
            if is_given and (writes or key in instead):
                value = copied_value(instead.get(key, self.value(key)))
            elif not is_given and (writes or not changed.isdisjoint(self.operands(key))):
                budget.check()
                value = self._call_node(
                    key, lambda k: live[k] if k in live else step.value(k), copies=not writes
                )
            else:
                continue
            if writes:
                live[key] = value
            value = copied_value(value)
            if not _is_unchanged(self.value(key), value):
                changed.add(key)
                step.graphs[key[0]].values[key[1]] = value
        step.changed = frozenset(changed)
        return step

    def _call_node(
        self,
        key: Key,
        value_of: Callable[[Key], Any],
        *,
        double: bool = False,
        copies: bool = True,
    ) -> Any:
        """Run one node.

        Args:
            key: the node.
            value_of: returns the value of a node.
            double: compute in float64.
            copies: copy the operands of a node that writes to one of them. False if the values are
                copies already, and later nodes must see the write.
        """
        valued, node = self.graphs[key[0]], self.fx(key)
        if node.op == "get_attr":
            return _attribute(valued.module, str(node.target), double)

        def leaf(operand: Any) -> Any:
            if isinstance(operand, torch.fx.Node):
                if operand.op == "get_attr":
                    return _attribute(valued.module, str(operand.target), double)
                value = value_of(self.resolve(key[0], valued.name[operand]))
                return in_double(value) if double else value
            # A dtype too: `_to_copy(dtype=torch.float32)` must not round in a float64 run.
            return cast_to_float64(operand) if double else operand

        args, kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), leaf)
        if copies and any(effect.kind == "mutates" for effect in self.node(key).effects):
            args, kwargs = copied_value((args, kwargs))
        with torch.no_grad(), valued.repeated_draw(key[1]):
            return _call(node, args, kwargs)


def _is_unchanged(before: Any, after: Any) -> bool:
    """Return True if two values of a node, which may be tuples, are known to be equal."""
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return before is after or (is_dense(before) and is_dense(after) and is_same(before, after))
    if isinstance(before, tuple | list) and isinstance(after, tuple | list):
        return len(before) == len(after) and all(map(_is_unchanged, before, after))
    return before is after


def _attribute(module: torch.fx.GraphModule, path: str, double: bool) -> Any:
    """Return a constant of a module, which may be inside its submodules."""
    value = attrgetter(path)(module)
    return cast_to_float64(value) if double else value


def _call(node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function or the method of a node. Graphs of ops call no module."""
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    function: Callable[..., Any] = node.target  # type: ignore[assignment]
    return function(*args, **kwargs)
