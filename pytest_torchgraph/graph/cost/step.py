"""The storages of a step of several graphs, some of which take what others made.

Where Dynamo broke a frame, a value that one graph makes can be an input of the next one, which
keeps it for its backward; what runs eagerly between them keeps its operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..model import Graph, Node, Ref
from .saved import need_saved, storage_bytes, viewed_by

Received: TypeAlias = Mapping[str, Mapping[str, str]]
"""Inputs of compiled graphs that another graph of the step made, by the names of graph and input:
`{"forward_1": {"h": "forward_0:relu"}}`. The graphs alone do not tell them from the step's inputs.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A storage that a step keeps for its backward.

    Attributes:
        node: the op that made it; of several results it is the projection.
        graph: the graph that made it.
        bytes: its size, as often as it was made.
    """

    node: Node
    graph: Graph
    bytes: int


def kept(graphs: Sequence[Graph], received: Received, *, times_run: bool = True) -> Iterator[Kept]:
    """The storages that graphs keep, each once.

    Args:
        graphs: those of a step, in the order in which they run.
        received: which inputs of the compiled ones another one made.
        times_run: whether one of a graph that ran several times counts as often.

    Raises:
        CaptureError: where graphs do not say what is saved, and for a size that is a symbol.
    """
    need_saved(graphs)
    storages = StepStorages(graphs, received)
    seen: set[tuple[int, str]] = set()
    for keeper in graphs:
        for ref in _kept_by(keeper, storages):
            maker, node = storages.base(keeper, ref)
            if node.is_call and (id(maker), node.name) not in seen:
                seen.add((id(maker), node.name))
                times = min(keeper.runs, maker.runs) if times_run else 1
                yield Kept(node, maker, storage_bytes(node, maker) * times)


def saved_bytes(graphs: Sequence[Graph], received: Received) -> int:
    """The bytes of them; see `kept`."""
    return sum(each.bytes for each in kept(graphs, received))


def _kept_by(graph: Graph, storages: StepStorages) -> Iterator[Ref]:
    """The values that a graph keeps; those of an eager backward are kept by eager autograd."""
    yield from graph.saved
    if graph.eager and graph.kind == "backward":
        for node in graph.inputs:
            maker, _ = storages.base(graph, Ref(node.name))
            if maker.kind != "backward":
                yield Ref(node.name)


class StepStorages:
    """Which values of several graphs share a storage.

    Args:
        graphs: those of a step, in the order in which they run.
        received: which inputs of the compiled ones another one made; eager ones name theirs by it.

    Attributes:
        forward_of: for the `id` of a compiled backward the forward whose saved values it takes.
    """

    def __init__(self, graphs: Sequence[Graph], received: Received):
        self._by_name = {graph.name: graph for graph in graphs}
        self._received = received
        self._bases: dict[int, dict[str, tuple[Graph, Node]]] = {}
        self.forward_of = _forwards(graphs)

    def base(self, graph: Graph, ref: Ref) -> tuple[Graph, Node]:
        """The node that made the storage of a value, with its graph; or the input that has it."""
        return self.bases(graph)[ref.name]

    def bases(self, graph: Graph) -> Mapping[str, tuple[Graph, Node]]:
        """The same for all nodes of a graph, in one pass: views can be long chains."""
        if id(graph) in self._bases:
            return self._bases[id(graph)]
        found = self._bases[id(graph)] = {}
        for node in graph.nodes:
            viewed = viewed_by(graph, node)
            if viewed is not None:
                found[node.name] = found[viewed.name]
                continue
            source = None if node.is_call else self._source(graph, node)
            maker = {} if source is None else self.bases(source[0])
            # Of graphs that name one another, which only a file can hold, each has its own.
            own = graph, node
            found[node.name] = own if source is None else maker.get(source[1].name, own)
        return found

    def _source(self, graph: Graph, node: Node) -> tuple[Graph, Ref] | None:
        """The value of another graph that an input is; None for an input of the step."""
        forward = self.forward_of.get(id(graph))
        if forward is not None:
            return (forward, Ref(node.name)) if _is_saved(node, forward) else None
        source = node.name if graph.eager else self._received.get(graph.name, {}).get(node.name, "")
        name, _, value = source.partition(":")
        maker = self._by_name.get(name)
        return (maker, Ref(value)) if maker is not None and value in maker.by_name else None


def _forwards(graphs: Sequence[Graph]) -> dict[int, Graph]:
    """The forward of each backward that is not eager: the last one that keeps what it takes."""
    left = {id(each): each for each in graphs if each.kind == "forward" and not each.eager}
    found = {}
    for graph in graphs:
        if graph.kind != "backward" or graph.eager:
            continue
        taken = {node.name for node in graph.inputs if node.op != "tangent"}
        for key, forward in reversed(left.items()):
            if taken <= {ref.name for ref in forward.saved}:
                found[id(graph)] = left.pop(key)
                break
    return found


def _is_saved(node: Node, forward: Graph) -> bool:
    return node.op != "tangent" and node.name in forward.by_name
