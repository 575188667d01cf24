"""The collectives of graphs: what is sent between ranks, where, and when it is waited for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CaptureError
from ..ops.collectives import CALLS_FUNCTION, WAITS, collective_kinds, hides_collectives
from ..ops.dtypes import item_size
from ..ops.levels import ATEN_LEVELS
from .model import Graph, Node, Ref, Source, TensorMeta, is_projection
from .select import tensors


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation of a graph; waiting for one is none.

    Attributes:
        kind: "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send",
            "recv", and seldom "reduce", "gather", "scatter" or "barrier". "other" is an op of
            somebody's own that is given the name of a group, where its name does not say more.
        group: the mesh dimension of its process group, else `g0`, `g1`, ... by first use; "" where
            the graph does not say it.
        bytes: what it takes or gives on one rank, whichever is larger; None where a size is a
            symbol. Of a coalesced one it is all its tensors together.
        dtype: of its tensors; of several that differ the first one's, "" where it is not known.
        shape: of the tensor that `bytes` is of; the first where there are several.
        module: path of the module that it is in.
        source: the user's line, where it is known.
        graph: name of the graph.
        distance: how many ops are between its start and its wait; None where the graph has no wait
            for it, as for one that is waited for at once.
        node: the op.
    """

    kind: str
    group: str
    bytes: int | None
    dtype: str
    shape: tuple[Any, ...]
    module: str
    source: Source | None
    graph: str
    distance: int | None
    node: Node

    def __str__(self) -> str:
        size = "? bytes" if self.bytes is None else f"{self.bytes:,} bytes"
        where = f" in {self.module}" if self.module else ""
        line = f" ({self.source})" if self.source is not None else ""
        return f"{self.kind} over {self.group or 'an unknown group'}, {size}{where}{line}"


def collectives_of(graphs: Iterable[Graph], *, times_run: bool) -> tuple[Collective, ...]:
    """The collectives of graphs and of their bodies, in the order of the nodes.

    Args:
        times_run: whether those of a graph that ran several times are there as often.

    Raises:
        CaptureError: for a graph of torch functions in which a `DTensor` is redistributed, and one
            of compiled autograd that calls the backward of an `autograd.Function`.
    """
    found: list[Collective] = []
    for top in graphs:
        inside = [each for graph in top.walk() for each in _of_graph(graph, top.name)]
        found += inside * (top.runs if times_run else 1)
    return tuple(found)


def _of_graph(graph: Graph, name: str) -> Iterator[Collective]:
    waits: dict[str, int] | None = None
    position = 0
    for node in graph.nodes:
        if not _counts(graph, node):
            continue
        if graph.level not in ATEN_LEVELS and hides_collectives(node.op):
            raise CaptureError(
                f"what %{node.name} ({node.op}) communicates is decided when it runs: capture via "
                "'aot' or 'dispatch', or use capture.at('aot')"
            )
        if node.op == CALLS_FUNCTION:
            raise CaptureError(
                f"%{node.name} ({node.op}) runs a backward in Python, and what that communicates "
                "is in no graph: capture via 'dispatch', 'aot' or 'inductor'"
            )
        communicates = any(effect.kind == "communicates" for effect in node.effects)
        kinds = collective_kinds(node.op, node.args, communicates=communicates)
        if kinds:
            waits = _first_waits(graph) if waits is None else waits
            distance = waits[node.name] - position - 1 if node.name in waits else None
            for kind, moved in zip(kinds, _moved(graph, node, len(kinds)), strict=True):
                yield _collective(node, kind, moved, name, distance)
        position += 1


def _counts(graph: Graph, node: Node) -> bool:
    """Whether a node is a call that does something, and no projection of another one."""
    return node.is_call and not (node.refs and is_projection(node, graph.by_name.get(node.refs[0])))


def _first_waits(graph: Graph) -> dict[str, int]:
    """The position, among the calls, of the first wait for each node."""
    waits: dict[str, int] = {}
    position = 0
    for node in graph.nodes:
        if not _counts(graph, node):
            continue
        if node.op in WAITS:
            for ref in node.refs:
                producer = graph.by_name[ref]
                if producer.op == "operator.getitem" and producer.refs:
                    ref = producer.refs[0]
                waits.setdefault(ref, position)
        position += 1
    return waits


def _collective(
    node: Node, kind: str, moved: Sequence[TensorMeta], graph: str, distance: int | None
) -> Collective:
    first = moved[0] if moved else None
    return Collective(
        kind,
        _group(node),
        total_bytes(moved),
        first.dtype if first else "",
        first.shape if first else (),
        node.module,
        node.source,
        graph,
        distance,
        node,
    )


def _group(node: Node) -> str:
    """The group that a collective is given: the last text among its arguments."""
    for key in ("group_name", "process_group"):
        if isinstance(node.kwargs.get(key), str):
            return str(node.kwargs[key])
    texts = [arg for arg in node.args if isinstance(arg, str)]
    return texts[-1] if texts else ""


def _moved(graph: Graph, node: Node, parts: int) -> list[Sequence[TensorMeta]]:
    """The tensors that count for each of the parts: of what goes in and comes out, the larger."""
    taken = [list(_tensors_of(graph, arg)) for arg in (*node.args, *node.kwargs.values())]
    if parts > 1:  # several sends and receives at once, each of one tensor
        each = next((tensors_ for tensors_ in taken if len(tensors_) == parts), [])
        return [[tensor] for tensor in each] if each else [[]] * parts
    sides = [*taken, list(tensors(node.result))]
    return [max(sides, key=_size)]


def _size(side: Sequence[TensorMeta]) -> float:
    """The bytes of tensors together; one that is not known is larger than all that are."""
    total = total_bytes(side)
    return math.inf if total is None else total


def _tensors_of(graph: Graph, arg: Any) -> Iterator[TensorMeta]:
    if isinstance(arg, Ref):
        yield from tensors(graph.by_name[arg.name].result)
    elif isinstance(arg, tuple):
        for each in arg:
            yield from _tensors_of(graph, each)


def total_bytes(found: Iterable[TensorMeta]) -> int | None:
    """The bytes of tensors together, None where a size is a symbol."""
    total = 0
    for tensor in found:
        sizes = [size for size in tensor.shape if isinstance(size, int)]
        if len(sizes) < len(tensor.shape):
            return None
        total += math.prod(sizes) * item_size(tensor.dtype)
    return total
