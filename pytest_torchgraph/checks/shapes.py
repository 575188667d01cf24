"""Assertions on sizes of inputs, and on how many graphs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..graph.model import Graph, Node, Symbol, TensorMeta
from ..words import listed

if TYPE_CHECKING:
    from .subject import Subject


def assert_sizes(capture: Subject, name: str, dim: int | Sequence[int], *, dynamic: bool) -> None:
    """See `Capture.assert_dynamic` and `Capture.assert_static`."""
    __tracebackhide__ = True
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if any(isinstance(each, bool) or not isinstance(each, int) for each in dims):
        raise TypeError(f"dim={dim!r} is no dimension: pass an int, or a sequence of ints")
    if not dims:
        raise TypeError(f"dim={dim!r} checks nothing: name at least one dimension")
    wanted = "a symbol" if dynamic else "a number"
    wrong: list[str] = []
    for graph, node in _inputs(capture.forwards, name):
        result = node.result
        if not isinstance(result, TensorMeta):
            raise ValueError(f"{name!r} of {graph.name} is no tensor, so it has no sizes")
        for dim in dims:
            if not -len(result.shape) <= dim < len(result.shape):
                raise ValueError(
                    f"{name!r} of {graph.name} has {len(result.shape)} dimensions, so there is no "
                    f"dim={dim}"
                )
            size = result.shape[dim]
            if isinstance(size, Symbol) != dynamic:
                shown = ", ".join(
                    each.expr if isinstance(each, Symbol) else str(each) for each in result.shape
                )
                wrong.append(f"  {graph.name}: {name} is [{shown}], so dim {dim} is not {wanted}")
    if wrong:
        word = "dynamic" if dynamic else "static"
        raise AssertionError("\n".join([f"sizes of {name} that are not {word}:", *wrong]))


def _inputs(graphs: Sequence[Graph], name: str) -> list[tuple[Graph, Node]]:
    """The inputs of this name.

    Raises:
        ValueError: where no graph has one.
    """
    found = [(graph, node) for graph in graphs for node in graph.inputs if node.name == name]
    if not found:
        there = dict.fromkeys(
            node.name for graph in graphs for node in graph.inputs if node.op == "input"
        )
        raise ValueError(
            f"no forward graph has an input {name!r}; there is {', '.join(there) or 'none at all'}"
        )
    return found


def assert_distinct_graphs(capture: Subject, count: int) -> None:
    """See `Capture.assert_distinct_graphs`."""
    __tracebackhide__ = True
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise TypeError(f"{count!r} is no number of graphs: pass an int of at least 1")
    groups: list[list[Graph]] = []
    for graph in capture.graphs:
        same = next((group for group in groups if group[0] == graph), None)
        if same is None:
            groups.append([graph])
        else:
            same.append(graph)
    if len(groups) != count:
        lines = [f"distinct graphs: expected {count}, found {len(groups)}"]
        for group in groups:
            names = listed((graph.name for graph in group), 8)
            inputs = ", ".join(_input_words(group[0])[:6])
            lines.append(f"  {group[0].kind} of {len(group[0].nodes)} nodes: {names}")
            lines.append(f"      {inputs}")
        raise AssertionError("\n".join(lines))


def _input_words(graph: Graph) -> list[str]:
    words = []
    for node in graph.inputs:
        if node.op == "input" and isinstance(node.result, TensorMeta):
            sizes = ", ".join(
                size.expr if isinstance(size, Symbol) else str(size) for size in node.result.shape
            )
            words.append(f"{node.name} [{sizes}]")
    return words
