"""A graph as arrays of numbers, for equality and diff.

All dependencies become one thing, the ordered operands of a node:

- its arguments, in order;
- `Node.after`, the writes that it must come after;
- the effect before its own on the same resource (an input, an attribute, the random numbers, ...);
- for the output, the values saved for backward, those that the target returned (`Graph.output`),
  and the last effect on each resource.

So equality and diff need not know of side effects, and a node is live where it is reachable from
the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from ..model import (
    Arg,
    Device,
    Graph,
    InputRef,
    Node,
    Ref,
    Result,
    SubgraphRef,
    Symbol,
    TensorMeta,
)
from ..text.format import format_arg, format_key, format_result, quote


class NumberedGraph:
    """A graph, its nodes numbered by position.

    Attributes:
        graph: the graph.
        nodes: its nodes; the output is the last.
        index: the number of each node, by its name.
        inputs: numbers of the placeholders.
        roots: those that are compared in their order.
        labels: for each node all that is compared apart from operands, as a string: kind, op,
            constants, effects, dtype and shape, and the classes of subgraphs.
        valueless: the labels, without the values of constant tensors.
        values: the value of each constant tensor, as a string, if it is known.
        plain: the labels without the classes of subgraphs.
        shapeless: the labels without dtype and shape.
        operands: for each node the numbers of its operands, in the order above.
        arity: for each node how many of its operands are arguments (or outputs and saved values).
    """

    def __init__(self, graph: Graph, subgraph_label: Callable[[str], str] | None = None):
        subgraph_label = subgraph_label or _no_label
        self.graph = graph
        self.nodes = graph.nodes
        self.index = {node.name: i for i, node in enumerate(graph.nodes)}
        self.inputs = [i for i, node in enumerate(self.nodes) if node.kind == "placeholder"]
        self.roots = self.inputs
        self.labels: list[str] = []
        self.valueless = self.labels
        self.values: dict[int, str] = {}
        self.plain: list[str] = []
        self.shapeless: list[str] = []
        self.operands: list[list[int]] = []
        self.arity: list[int] = []
        heads: dict[str, int] = {}
        results: dict[Result, str] = {}
        for i, node in enumerate(self.nodes):
            refs: list[str] = []
            call = self._call(node, refs, subgraph_label)
            result = results.get(node.result)
            if result is None:
                result = results[node.result] = _result(node)
            label = f"{call}:{result}"
            self.shapeless.append(call)
            self.labels.append(label)
            if node.args and is_constant(node):
                self.values[i] = format_arg(node.args)
            if graph.subgraphs:
                label = f"{self._call(node, [], _no_label)}:{result}"
            self.plain.append(label)
            if node.kind == "output":
                refs.extend(ref.name for ref in graph.saved)
            operands = [self.index[name] for name in refs]
            self.arity.append(len(operands))
            operands += [self.index[ref.name] for ref in node.after]
            if node.kind == "output" and graph.output is not None:
                operands += self._returned_by_target()
            if node.effects:
                operands += [operand for operand in self._chain(node, i, heads) if operand != i]
            if node.kind == "output":
                operands += [heads[key] for key in sorted(heads)]
            self.operands.append(operands)
        if self.values:
            self.valueless = [*self.labels]
            for i, value in self.values.items():
                self.labels[i] += f"={value}"
                self.plain[i] += f"={value}"

    def _returned_by_target(self) -> list[int]:
        """Add to the label of the output what the target returned; the nodes among that."""
        refs: list[str] = []
        leaves = [
            f"{quote(path)}={_skeleton(value, refs, _no_label)}"
            for path, value in sorted(self.graph.output or (), key=_first)
        ]
        for labels in (self.labels, self.plain, self.shapeless):
            labels[-1] += "".join(f" output {leaf}" for leaf in leaves)
        return [self.index[name] for name in refs]

    def _call(self, node: Node, refs: list[str], subgraph_label: Callable[[str], str]) -> str:
        """The label without dtype and shape; the references in it are appended to `refs`."""
        if node.kind == "placeholder":
            return "placeholder"
        of_call = () if is_constant(node) else node.args
        args = [_skeleton(arg, refs, subgraph_label) for arg in of_call]
        if node.kwargs:
            args += [
                f"{format_key(key)}={_skeleton(node.kwargs[key], refs, subgraph_label)}"
                for key in sorted(node.kwargs)
                if not isinstance(node.kwargs[key], Device)
            ]
        effects = "".join([f"!{effect.kind}" for effect in node.effects]) if node.effects else ""
        target = quote(node.target) if node.target else ""
        target += quote(node.options) if node.options else ""
        return f"{node.kind} {node.op}{target}({','.join(args)}){effects}"

    def _chain(self, node: Node, i: int, heads: dict[str, int]) -> Iterator[int]:
        """The earlier effects that this node's effects must follow.

        Args:
            i: the node's number.
            heads: the last effect on each resource so far; updated.
        """
        for effect in node.effects:
            if effect.kind == "opaque":
                yield from (heads[key] for key in sorted(heads))
                heads.clear()
                heads["opaque"] = i
                continue
            key: str = effect.kind
            if effect.target is not None:
                owner = self.index[effect.target.name]
                kind, target = self.nodes[owner].kind, self.nodes[owner].target
                if kind == "placeholder":
                    key = f"mutates input {owner:09}"
                elif kind == "get_attr":
                    key = f"mutates {quote(target)}"
                else:
                    continue  # a storage born in the graph: operands and `after` say it all
            if key in heads:
                yield heads[key]
            elif "opaque" in heads:
                yield heads["opaque"]
            heads[key] = i

    @cached_property
    def users(self) -> list[list[tuple[int, int]]]:
        """For each node the (user, slot) pairs in which it is an operand."""
        users: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for i, operands in enumerate(self.operands):
            for slot, operand in enumerate(operands):
                users[operand].append((i, slot))
        return users

    @property
    def returned(self) -> list[int]:
        """What the graph returns, without what it saves for its backward; there is an output."""
        return self.operands[-1][: self.arity[-1] - len(self.graph.saved)]

    def uses(self, i: int) -> list[tuple[int, int]]:
        """The (user, slot) pairs in which a node is an operand, apart from being saved.

        What a forward saves is a set that follows from the backward, and its order says nothing
        about a node, nor does which random op is the next. Of a node that is merely saved or has
        its turn this alone is known: slot -1 of the output.
        """
        last = len(self.nodes) - 1
        end = self.arity[last]
        saved = range(end - len(self.graph.saved), end)
        found = [
            (user, slot)
            for user, slot in self.users[i]
            if not (user == last and slot in saved) and not self.takes_turns(user, slot)
        ]
        return found or [(last, -1)] * bool(self.users[i])

    def takes_turns(self, i: int, slot: int) -> bool:
        """Whether an operand is merely what had its turn before: the random op before this one.

        Two such ops have no value and no storage in common. What has the last turn is an operand of
        the output.
        """
        if slot < self.arity[i]:
            return False
        node, other = self.nodes[i], self.nodes[self.operands[i][slot]]
        if any(ref.name == other.name for ref in node.after):
            return False
        return not {*_mutated(node)} & {*_mutated(other)}

    def live(self) -> list[bool]:
        """For each node whether the output or a side effect needs it."""
        live = [False] * len(self.nodes)
        if live:
            live[-1] = True
        for i in range(len(self.nodes) - 1, -1, -1):
            if live[i]:
                for operand in self.operands[i]:
                    live[operand] = True
        return live


def is_constant(node: Node) -> bool:
    """Return True for a constant tensor, whose only argument is its value."""
    return node.kind == "get_attr" or node.op == "constant"


def _mutated(node: Node) -> Iterator[str]:
    """The names of what a node writes to."""
    return (effect.target.name for effect in node.effects if effect.target is not None)


def _no_label(_name: str) -> str:
    return ""


def _result(node: Node) -> str:
    if isinstance(node.result, TensorMeta | Symbol):
        return format_result(node.result)
    return ""  # of a tuple the projections' results count; that it is an int, the value says


def _first(item: tuple[str, Arg]) -> str:
    return item[0]


def _skeleton(value: Arg, refs: list[str], subgraph_label: Callable[[str], str]) -> str:
    """The argument printed with its references left open; these are appended to `refs`."""
    if isinstance(value, Ref):
        refs.append(value.name)
        return "%"
    if isinstance(value, tuple):
        return f"[{','.join([_skeleton(item, refs, subgraph_label) for item in value])}]"
    if isinstance(value, dict):
        items = sorted(((format_arg(key), item) for key, item in value.items()), key=_first)
        return "{" + ",".join(f"{k}:{_skeleton(v, refs, subgraph_label)}" for k, v in items) + "}"
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        return f"slice({','.join(_skeleton(item, refs, subgraph_label) for item in bounds)})"
    if isinstance(value, SubgraphRef):
        return f"@{subgraph_label(value.name)}"
    if isinstance(value, Device):
        return "device"
    if isinstance(value, InputRef):
        return f"input {value.position}"
    return format_arg(value)
