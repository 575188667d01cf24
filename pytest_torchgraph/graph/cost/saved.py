"""What a forward keeps for its backward, by storages.

A saved view keeps the storage that it is a view of, and two views of one storage keep it once.
What parameters, buffers, constants and inputs hold is there anyway, and left out: a transposed
weight is a view of a parameter, and a sum of the saved values' own sizes can be many times the
truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ...errors import CaptureError
from ...ops.dtypes import item_size
from ...ops.levels import SAVING_LEVELS
from ...ops.views import shared_argument
from ..model import Graph, Node, Ref, Symbol, TensorMeta, is_projection


@dataclass(frozen=True, slots=True, eq=False)
class SavedStorage:
    """A storage that a graph keeps for the backward.

    Attributes:
        node: the op that made it; of several results it is the projection.
        bytes: its size.
        graph: the graph that keeps it.
    """

    node: Node
    bytes: int
    graph: Graph


def saved_storages(graph: Graph) -> Iterator[SavedStorage]:
    """The storages that one run of a graph keeps, each once, without inputs.

    Raises:
        CaptureError: where a size is a symbol, or what is saved is not known.
    """
    for node in owners_of_saved(graph):
        yield SavedStorage(node, storage_bytes(node), graph)


def owners_of_saved(graph: Graph) -> Iterator[Node]:
    """The ops that made the storages that a graph keeps, each once."""
    seen: set[str] = set()
    for ref in graph.saved:
        node = base(graph, ref)
        if node.is_call and node.name not in seen:
            seen.add(node.name)
            yield node


def base(graph: Graph, ref: Ref) -> Node:
    """The node that made the storage of a value, or the input that has it."""
    node = graph.by_name[ref.name]
    while node.is_call:
        refs = node.refs if node.op == "operator.getitem" else ()
        producer = graph.by_name.get(refs[0]) if refs else None
        if is_projection(node, producer):
            assert producer is not None
            viewed = _viewed(producer)
        else:
            viewed = _viewed(node)
        if viewed is None:
            return node
        node = graph.by_name[viewed.name]
    return node


def saved_bytes(graphs: Sequence[Graph]) -> int:
    """The bytes that graphs keep for the backward, as often as they ran; see the module.

    Raises:
        CaptureError: where graphs do not say what is saved, and for a size that is a symbol.
    """
    need_saved(graphs)
    return sum(each.bytes * graph.runs for graph in graphs for each in saved_storages(graph))


def need_saved(graphs: Sequence[Graph]) -> None:
    """Refuse graphs that do not say what they keep for the backward.

    Raises:
        CaptureError: for their level.
    """
    unknown = {graph.level for graph in graphs} - SAVING_LEVELS
    if unknown:
        raise CaptureError(
            f"graphs at level {min(unknown)!r} do not say what is saved for the backward: capture "
            "via 'aot' or 'dispatch', or use capture.at('aot')"
        )


def _viewed(node: Node) -> Ref | None:
    """The argument whose storage the result of a node has; None where it has its own."""
    position = shared_argument(node.op)
    if position is None or position >= len(node.args):
        return None
    viewed = node.args[position]
    return viewed if isinstance(viewed, Ref) else None


def storage_bytes(node: Node) -> int:
    """The bytes of the storage that a node makes; 0 for what is no tensor."""
    if not isinstance(node.result, TensorMeta):
        return 0
    for size in node.result.shape:
        if isinstance(size, Symbol):
            raise CaptureError(
                f"the bytes of %{node.name} ({node.op}), which is saved for the backward, depend "
                f"on the size {size.expr}, which is a symbol: capture with static sizes, as via "
                "Aot(dynamic=False)"
            )
    sizes = (size for size in node.result.shape if isinstance(size, int))
    return prod(sizes) * item_size(node.result.dtype)
