"""A graph as arrays: what equality and diff both work on.

Everything that dataflow means is turned into one thing, the ordered operands of a node: arguments,
explicit ordering (`Node.after`), and the implicit chain of side effects on one resource. The output
node is given the last effect on each resource as further operands. From then on nobody needs to
think of side effects, and reachability from the output is liveness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from ..model import Arg, Device, Graph, Node, Ref, SubgraphRef, Symbol, TensorMeta
from ..text import format_arg, format_key, format_result, quote


class NumberedGraph:
    """A graph, its nodes numbered by position.

    Attributes:
        nodes: the nodes; the output is the last.
        labels: for each node all that is compared apart from operands, as a string.
        plain: the same without what the bodies of a higher-order op compute.
        operands: for each node the numbers of its operands, in order.
        inputs: numbers of the placeholders.
    """

    def __init__(self, graph: Graph, subgraph_label: Callable[[str], str] | None = None):
        subgraph_label = subgraph_label or _no_label
        self.graph = graph
        self.nodes = graph.nodes
        self.index = {node.name: i for i, node in enumerate(graph.nodes)}
        self.inputs = [i for i, node in enumerate(self.nodes) if node.kind == "placeholder"]
        self.labels: list[str] = []
        self.plain: list[str] = []
        self.shapeless: list[str] = []
        self.operands: list[list[int]] = []
        self.arity: list[int] = []
        heads: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            refs: list[str] = []
            call = self._call(node, refs, subgraph_label)
            self.shapeless.append(call)
            self.labels.append(f"{call}:{_result(node)}")
            if graph.subgraphs:
                call = self._call(node, [], _no_label)
            self.plain.append(f"{call}:{_result(node)}")
            if node.kind == "output":
                refs.extend(ref.name for ref in graph.saved)
            operands = [self.index[name] for name in refs]
            self.arity.append(len(operands))
            operands += [self.index[ref.name] for ref in node.after]
            if node.effects:
                operands += [operand for operand in self._chain(node, i, heads) if operand != i]
            if node.kind == "output":
                operands += [heads[key] for key in sorted(heads)]
            self.operands.append(operands)

    def _call(self, node: Node, refs: list[str], subgraph_label: Callable[[str], str]) -> str:
        if node.kind == "placeholder":
            return "placeholder"
        args = [_skeleton(arg, refs, subgraph_label) for arg in node.args]
        args += [
            f"{format_key(key)}={_skeleton(node.kwargs[key], refs, subgraph_label)}"
            for key in sorted(node.kwargs)
            if not isinstance(node.kwargs[key], Device)
        ]
        effects = "".join(f"!{effect.kind}" for effect in node.effects)
        target = quote(node.target) if node.target else ""
        return f"{node.kind} {node.op}{target}({','.join(args)}){effects}"

    def _chain(self, node: Node, i: int, heads: dict[str, int]) -> Iterator[int]:
        """Operands that keep the effects on one resource in order."""
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

    def live(self) -> list[bool]:
        """Which nodes the output or a side effect needs."""
        live = [False] * len(self.nodes)
        if live:
            live[-1] = True
        for i in range(len(self.nodes) - 1, -1, -1):
            if live[i]:
                for operand in self.operands[i]:
                    live[operand] = True
        return live


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
    return format_arg(value)
