"""The census: every op that graphs run, including bodies and wrapped ops, with its number of runs.

torch can run an op indirectly: in the body of a higher-order op, or inside an op that wraps it.
Counts, patterns, order, costs and filters all get the ops from this module, so none of them
overlooks such an op.

A body counts once per call, and nested calls multiply. `higher_order` defines how often a call runs
a body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ops.collectives import calls_python
from ..ops.matching import OpCounts
from ..words import listed
from .higher_order import (
    CONTROL_DEPS,
    KINDS,
    PREFIX,
    SAVING_STATE,
    body_names,
    executed,
    hides,
    leaves,
    ops_named,
)
from .model import Arg, Graph, Node, Ref, Result, TensorMeta, is_projection, iter_refs

Move: TypeAlias = tuple[str, str]
"""Module in which a body was traced, and module of the call that runs it."""
_Moves: TypeAlias = tuple[Move, ...]
"""Moves from the innermost body outwards."""


@dataclass(frozen=True, slots=True)
class Run:
    """A body that a call runs.

    Attributes:
        body: the body.
        times: number of runs per call, `None` if the graph does not record it; see `counted`.
    """

    body: Graph
    times: int | None

    @property
    def counted(self) -> int:
        """Number of counted runs: 1 if unknown."""
        return 1 if self.times is None else self.times


@dataclass(slots=True, eq=False)
class OpCall:
    """An op that graphs run.

    Attributes:
        node: the calling node.
        graph: graph or body that contains the node.
        op: the op; see `higher_order.executed`.
        times: number of runs of the node in one run of the outermost graph.
        _contexts: `times`, divided among the chains of calls that lead to the graph; see
            `_iter_graphs`.
    """

    node: Node
    graph: Graph
    op: str
    times: int
    _contexts: Mapping[_Moves, int]

    @property
    def modules(self) -> Mapping[str, int]:
        """Run count of the op in each module, by the path of the innermost module around it.

        If a graph ran for several modules, each has the op as often as it is in the graph.
        """
        counts: Counter[str] = Counter()
        for moves, times in self._contexts.items():
            module = self.node.module
            for move in moves:
                module = moved(module, move)
            counts[module] += times
        runs_of_graph = self.graph.calls or ()
        if len(runs_of_graph) > 1:
            from .step import renamed_paths  # which needs `moved`

            own = dict(counts)
            for run in runs_of_graph:
                paths = renamed_paths(self.graph, run.inputs)
                for module, times in own.items():
                    counts.setdefault(moved(module, *paths), times)
        return counts

    @property
    def result(self) -> Result:
        """Result of the op.

        For a wrapper without a known result, these are the results of the `getitem` nodes that
        select from it.
        """
        result = executed(self.node).result
        if result is not None or self.op == self.node.op:
            return result
        selected = (
            node.result
            for node in self.graph.nodes
            if node.op == "operator.getitem"
            and node.refs[:1] == (self.node.name,)
            and not (self.node.op == SAVING_STATE and node.args[1] == 0)  # the generator's state
        )
        return tuple(selected)

    @property
    def written(self) -> Result:
        """Tensors that the call writes, as described by the nodes that own their storage."""
        targets = [effect.target for effect in self.node.effects if effect.target is not None]
        return tuple(self.graph.by_name[target.name].result for target in targets)


@dataclass(frozen=True, slots=True)
class OwnCalls:
    """Counted calls of one graph, without its bodies; see `Graph.own_calls`.

    A graph has few distinct ops and thousands of calls. A query about ops searches the groups
    instead of all calls.

    Attributes:
        numbers: for each op, the positions of the nodes that call it.
        hiding: first call of each op that runs code outside every graph.
    """

    numbers: Mapping[str, Sequence[int]]
    hiding: Mapping[str, Node]


def own_calls(graph: Graph) -> OwnCalls:
    """Compute `Graph.own_calls`."""
    numbers: dict[str, list[int]] = {}
    hiding: dict[str, Node] = {}
    for number, node, op in _iter_ops(graph):
        is_new = op not in numbers
        numbers.setdefault(op, []).append(number)
        # Whether a higher-order op hides ops depends on its arguments, so each call is checked.
        if (is_new or node.op.startswith(PREFIX)) and hides(node):
            hiding.setdefault(op, node)
    return OwnCalls(numbers, hiding)


def calls(graphs: Iterable[Graph], *, uncounted: bool = False) -> Iterator[OpCall]:
    """Yield the calls of graphs and of the bodies they run.

    A node that several calls run is yielded once. The nodes of a body follow the nodes of the graph
    that contains it.

    Args:
        graphs: the graphs.
        uncounted: also yield projections (see `model.is_projection`) and wrappers.
    """
    for graph, contexts in _iter_graphs(graphs):
        times = sum(contexts.values())
        for _, node, op in _iter_ops(graph, uncounted):
            yield OpCall(node, graph, op, times, contexts)


def calls_of(graphs: Iterable[Graph], is_wanted: Callable[[str], bool]) -> Iterator[OpCall]:
    """Yield the `calls` whose op satisfies `is_wanted`."""
    for graph, contexts in _iter_graphs(graphs):
        by_op = graph.own_calls.numbers
        wanted_ops = [op for op in by_op if is_wanted(op)]
        times = sum(contexts.values())
        numbered_ops = [(number, op) for op in wanted_ops for number in by_op[op]]
        for number, op in sorted(numbered_ops):
            yield OpCall(graph.nodes[number], graph, op, times, contexts)


def hiding_calls(graphs: Iterable[Graph]) -> Iterator[tuple[Graph, Node, str]]:
    """Yield the first call of each op that runs code outside every graph, with its graph and op."""
    for graph, _ in _iter_graphs(graphs):
        for op, node in graph.own_calls.hiding.items():
            yield graph, node, op


def describe_python_calls(graphs: Iterable[Graph]) -> str:
    """Return the calls of Python code whose ops no graph contains; "" if there are none."""
    calls = [
        f"%{node.name} in {graph.name}"
        for graph, node, op in hiding_calls(graphs)
        if calls_python(op)
    ]
    return f"ops of Python code: {listed(calls)}" if calls else ""


def count_ops(graphs: Iterable[Graph]) -> OpCounts:
    """Count the runs of each op in graphs. A graph that ran several times counts once."""
    counts: Counter[str] = Counter()
    for graph, contexts in _iter_graphs(graphs):
        times = sum(contexts.values())
        for op, numbers in graph.own_calls.numbers.items():
            counts[op] += len(numbers) * times
    return OpCounts(counts)


def _iter_ops(graph: Graph, uncounted: bool = False) -> Iterator[tuple[int, Node, str]]:
    """Yield the calls of a graph, each with its position and the op that it counts as.

    With `uncounted`, a wrapper has two entries, one for itself and one for the wrapped op. A
    higher-order op without an entry in `higher_order` has one more for each op among its arguments.
    """
    for number, node in enumerate(graph.nodes):
        op = node.op
        if not node.is_call:
            continue
        if op == "operator.getitem" and not uncounted and is_projection_node(graph, node):
            continue
        if not op.startswith(PREFIX):
            yield number, node, op
            continue
        op = executed(node).op
        if uncounted and op != node.op:
            yield number, node, node.op
        if op != CONTROL_DEPS or uncounted:
            yield number, node, op
        for name in ops_named(node):
            yield number, node, name


def _iter_graphs(graphs: Iterable[Graph]) -> Iterator[tuple[Graph, Mapping[_Moves, int]]]:
    """Yield graphs and the bodies they run, each with its number of runs for each chain of moves.

    The bodies of a graph follow the graph.
    """
    for top in graphs:
        pending: list[tuple[Graph, Mapping[_Moves, int]]] = [(top, {(): 1})]
        while pending:
            graph, contexts = pending.pop()
            yield graph, contexts
            if graph.subgraphs:
                pending += reversed(_bodies_with_runs(graph, contexts))


def _bodies_with_runs(
    graph: Graph, contexts: Mapping[_Moves, int]
) -> list[tuple[Graph, Mapping[_Moves, int]]]:
    """Return the bodies that a graph runs, with their number of runs for each chain of moves."""
    counts: dict[str, Counter[_Moves]] = {}
    homes = Homes(graph)
    for node in graph.nodes:
        for run in runs(graph, node):
            move = homes.move(node, run.body)
            for moves, times in contexts.items():
                inner = (move, *moves) if move else moves
                counts.setdefault(run.body.name, Counter())[inner] += times * run.counted
    return [(body, counts[body.name]) for body in graph.subgraphs if body.name in counts]


def is_projection_node(graph: Graph, node: Node) -> bool:
    """Return True if a node is a projection of its producer; see `model.is_projection`."""
    if node.op != "operator.getitem" or not node.args:
        return False
    first = node.args[0]
    # `node.refs` searches all arguments, so it is read only if the first is no reference.
    name = first.name if type(first) is Ref else next(iter(node.refs), None)
    return name is not None and is_projection(node, graph.by_name.get(name))


# -- bodies ----------------------------------------------------------------------------------------


def runs(graph: Graph, node: Node) -> list[Run]:
    """Return the runs of bodies by a call, in the order of its arguments."""
    names = [*body_names(node)] if graph.subgraphs else []
    if not names:
        return []
    bodies = graph.subgraphs_by_name
    times = _runs_per_call(graph, executed(node))
    return [Run(bodies[name], times) for name in names if name in bodies]


def bodies_of(graph: Graph, node: Node) -> list[Graph]:
    """Return the bodies that a call runs, in the order of its arguments."""
    return [run.body for run in runs(graph, node)]


def _runs_per_call(graph: Graph, node: Node) -> int | None:
    """Return `Run.times` of each body of a call."""
    kind = KINDS.get(node.op)
    if kind in ("map", "scan"):
        # The rows follow the body, in a scan also the initial state.
        rows = node.args[1 if kind == "map" else 2 :][:1]
        operands = (graph.by_name[ref.name] for ref in iter_refs(rows))
        result = next((operand.result for operand in operands), None)
        length = result.shape[0] if isinstance(result, TensorMeta) and result.shape else None
        return length if isinstance(length, int) else None
    return None if kind in ("tree", "loop", None) else 1


def operands_of(node: Node) -> list[Arg]:
    """Return the leaves of the arguments after the body, which a `call` passes to the body."""
    node = executed(node)
    is_after_body = False
    operands: list[Arg] = []
    for arg in node.args:
        if is_after_body:
            operands += leaves(arg)
        is_after_body = is_after_body or any(body_names(arg))
    return operands


def outputs_of(body: Graph) -> list[Arg]:
    """Return the leaves of a body's return value."""
    return [leaf for node in body.nodes if node.kind == "output" for leaf in leaves(node.args)]


def returned_by(body: Graph) -> Result:
    """Return the results of the values that a body returns."""

    def result(value: Arg) -> Result:
        if isinstance(value, tuple):
            return tuple(result(item) for item in value)
        return body.by_name[value.name].result if isinstance(value, Ref) else None

    return next((result(node.args[0]) for node in body.nodes if node.kind == "output"), None)


# -- modules ---------------------------------------------------------------------------------------


class Homes:
    """Modules in which the bodies of a graph were traced.

    Several layers can share a body. Its nodes have the path of the layer in which the body was
    traced, the body's home. If another layer calls the body, the ops count for the other layer.
    """

    def __init__(self, graph: Graph):
        self._callers: dict[str, dict[str, None]] = {}  # of each body, without repetition
        self._homes: dict[str, str] = {}
        for node in graph.nodes if graph.subgraphs else ():
            for name in body_names(node) if node.is_call and node.module else ():
                self._callers.setdefault(name, {})[node.module] = None

    def move(self, node: Node, body: Graph) -> Move | None:
        """Return the home of a body and the module of a call; `None` if the call needs no move."""
        home = self._find_home(body) if len(self._callers.get(body.name, ())) > 1 else ""
        return (home, node.module) if home and node.module not in ("", home) else None

    def _find_home(self, body: Graph) -> str:
        """Return the caller that contains the nodes of a body; "" if no caller does."""
        if body.name not in self._homes:
            paths = {node.module for graph in body.walk() for node in graph.nodes}
            homes = [
                caller
                for caller in self._callers[body.name]
                if any(path == caller or path.startswith(caller + ".") for path in paths)
            ]
            # The innermost of nested callers: an enclosing module contains the nodes too.
            self._homes[body.name] = max(homes, key=len, default="")
        return self._homes[body.name]


def moved(path: str, *moves: Move) -> str:
    """Return a path with the home at its beginning replaced by the module of the call.

    Args:
        path: the module or the name of a node.
        moves: homes and callers. The first one that fits counts.
    """
    for home, caller in moves:
        if path.startswith(home) and path[len(home) : len(home) + 1] in ("", ".", "/"):
            return caller + path[len(home) :]
    return path
