"""Graphs with numbers in place of symbols, so that what depends on sizes can be said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from .expressions import UnknownExpression, value_of
from .model import Arg, Graph, Node, Result, Symbol, TensorMeta

_NAME = re.compile(r"\b(?:s|u|zuf|zf|j)\d+\b")


def with_sizes(graphs: Sequence[Graph], sizes: Mapping[str, int]) -> tuple[Graph, ...]:
    """The graphs of a step with values for symbols; see `Capture.with_sizes`."""
    there = _symbols(graphs)
    known = ", ".join(f"{each} ({place})" for each, place in there.items()) or "none at all"
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is no size: pass an int")
        if value < 0:
            raise ValueError(f"{name}={value} is no size: it is negative")
        if name not in there:
            raise ValueError(f"there is no symbol {name!r}: there is {known}")
    if not sizes:
        raise TypeError(
            f"with_sizes() changes nothing: pass a size by the name of its symbol; there is {known}"
        )
    return tuple(_Sizes(sizes).graph(graph) for graph in graphs)


def advice(size: Symbol) -> str:
    """What to do where a figure depends on a symbolic size."""
    names = ", ".join(f"{name}=8" for name in dict.fromkeys(_NAME.findall(size.expr))) or "s0=8"
    return (
        f"give symbols values, as with_sizes({names}) (with_sizes() lists them all), or capture "
        "with static sizes, as via Aot(dynamic=False)"
    )


def _symbols(graphs: Sequence[Graph]) -> dict[str, str]:
    """The symbols, in order, each with the place at which it is first seen."""
    seen: dict[str, str] = {}
    for graph in graphs:
        for each in graph.walk():
            for node in each.nodes:
                for place, symbol in _places(node):
                    seen.setdefault(symbol.expr, place)
    there: dict[str, str] = {}
    for expr, place in seen.items():
        for name in _NAME.findall(expr):
            there.setdefault(name, place)
    return dict(sorted(there.items(), key=lambda item: (item[0][0], len(item[0]), item[0])))


def _places(node: Node) -> Iterator[tuple[str, Symbol]]:
    """The symbols of a node, each with its place in words."""
    if isinstance(node.result, TensorMeta):
        for dim, size in enumerate(node.result.shape):
            if isinstance(size, Symbol):
                yield f"dim {dim} of {node.name}", size
    todo: list[Any] = [node.result, node.args, node.kwargs]
    while todo:
        value = todo.pop()
        if isinstance(value, Symbol):
            yield f"in {node.name}", value
        elif isinstance(value, TensorMeta):
            todo += [*value.shape, *(value.stride or ())]
        elif isinstance(value, tuple):
            todo += value
        elif isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, slice):
            todo += [value.start, value.stop, value.step]


class _Sizes:
    """Puts values in place of symbols; an expression with a symbol that has none stays."""

    def __init__(self, values: Mapping[str, int]):
        self.values = values
        self._found: dict[str, int | float | bool | None] = {}

    def graph(self, graph: Graph) -> Graph:
        return replace(
            graph,
            nodes=tuple(map(self.node, graph.nodes)),
            subgraphs=tuple(map(self.graph, graph.subgraphs)),
        )

    def node(self, node: Node) -> Node:
        return replace(
            node,
            args=self.arg(node.args),
            kwargs=self.arg(node.kwargs),
            result=self.result(node, node.result),
        )

    def arg(self, value: Arg) -> Arg:
        if isinstance(value, Symbol):
            found = self.value(value)
            return value if found is None else found
        if isinstance(value, tuple):
            return tuple(map(self.arg, value))
        if isinstance(value, Mapping):
            return {key: self.arg(each) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(self.arg(value.start), self.arg(value.stop), self.arg(value.step))
        return value

    def result(self, node: Node, result: Result) -> Result:
        if isinstance(result, TensorMeta):
            shape = tuple(self.size(node, size) for size in result.shape)
            stride = result.stride
            if stride is not None:
                stride = tuple(self.size(node, each) for each in stride)
            return replace(result, shape=shape, stride=stride)
        if isinstance(result, tuple):
            return tuple(self.result(node, each) for each in result)
        if isinstance(result, Symbol):
            found = self.value(result)
            return result if found is None else Symbol(str(found))
        return result

    def size(self, node: Node, size: int | Symbol) -> int | Symbol:
        if not isinstance(size, Symbol):
            return size
        found = self.value(size)
        if found is None:
            return size
        if not isinstance(found, int) or found < 0:
            given = ", ".join(f"{name}={value}" for name, value in self.values.items())
            raise ValueError(
                f"with {given} the size {size.expr} of %{node.name} would be {found}: no such "
                "shape can be"
            )
        return found

    def value(self, symbol: Symbol) -> int | float | bool | None:
        """The value of an expression; None where it is not known."""
        if symbol.expr not in self._found:
            try:
                found = value_of(symbol.expr, self.values)
            except UnknownExpression:
                found = None
            self._found[symbol.expr] = float(found) if isinstance(found, Fraction) else found
        return self._found[symbol.expr]
