"""Collectives of graphs: the tensors that ranks exchange, the group, the place and the wait."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CaptureError
from ..ops.collectives import (
    CALL_BACKWARD_OP,
    REDUCTIONS,
    WAITS,
    collective_kinds,
    hides_collectives,
    peers_of,
)
from ..ops.dtypes import ABBREVIATIONS, item_size
from ..ops.matching import ATEN_LEVELS
from ..ops.views import NO_WORK, without_overload
from ..words import counted
from .census import is_projection_node, runs
from .cost import producer_of, viewed_by
from .higher_order import executed
from .model import Graph, Node, Ref, Source, TensorMeta
from .select import tensors
from .text import aligned, format_shape, right_aligned

_PASSES_ON = re.compile(
    r"operator\.|torch\._dynamo\..*(validate_outputs|call_aot_bwd_prologue|call_accumulate_grad)\Z"
)
"""Functions in a graph that return the tensors among their arguments."""

NONE = "no collectives"
"""Table text if there are no collectives."""


def format_collectives(collectives: Sequence[Collective]) -> str:
    """Format collectives in columns, without empty columns.

    Args:
        collectives: the collectives; rows are numbered from 0.
    """
    if not collectives:
        return NONE
    columns = [
        right_aligned(["#", *(str(number) for number in range(len(collectives)))]),
        ["kind", *(collective.kind for collective in collectives)],
        ["group", *(collective.group or "?" for collective in collectives)],
        right_aligned(["bytes", *(format_bytes(collective) for collective in collectives)]),
        ["tensor", *(format_tensor(collective) for collective in collectives)],
        ["wait", *(format_wait(collective) for collective in collectives)],
        ["module", *(collective.module for collective in collectives)],
        ["line", *(str(collective.source or "") for collective in collectives)],
        ["graph", *(collective.graph for collective in collectives)],
    ]
    nonempty = [column for column in columns if any(column[1:])]
    return aligned([list(cells) for cells in zip(*nonempty, strict=True)])


def format_over(collective: Collective) -> str:
    """Format kind and group of a collective: `all_reduce over tp`."""
    return f"{collective.kind} over {collective.group or 'an unknown group'}"


def format_size(collective: Collective) -> str:
    """Format the size of a collective: `1,024 bytes`."""
    return "unknown bytes" if collective.bytes is None else f"{collective.bytes:,} bytes"


def format_bytes(collective: Collective) -> str:
    """Format the bytes of a collective, "?" if a size is a symbol."""
    return "?" if collective.bytes is None else f"{collective.bytes:,}"


def format_tensor(collective: Collective) -> str:
    """Format dtype and shape of a collective's tensor, "" if it has no tensor."""
    dtype = ABBREVIATIONS.get(collective.dtype, collective.dtype)
    return f"{dtype}[{format_shape(collective.shape)}]" if dtype else ""


def format_wait(collective: Collective) -> str:
    """Format the distance to a collective's wait: `at once`, `after 3 ops`. "" without a wait."""
    if collective.distance is None:
        return ""
    if not collective.distance:
        return "at once"
    after = f"after {counted(collective.distance, 'op')}"
    return f"{after}, none of which computes" if collective.exposed else after


@dataclass(frozen=True, slots=True, repr=False)
class Collective:
    """A collective operation in a graph. A wait is not a collective.

    Attributes:
        kind: "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send",
            "recv", and rarely "reduce", "gather", "scatter" or "barrier". "other" is a custom op
            that takes a group name, and whose own name does not state a kind.
        group: mesh dimension of the process group. Groups that are no mesh dimension are named
            `g0`, `g1`, ... by first use. "" if the graph does not record the group.
        bytes: input size or output size on one rank, whichever is larger; `None` if a size is a
            symbol. For a coalesced collective, the total of its tensors.
        dtype: dtype of the first tensor; "" if unknown.
        shape: shape of the tensor measured by `bytes`; the first if there are several.
        module: path of its module.
        source: the user's line, `None` if unknown.
        graph: name of the graph.
        distance: number of ops between the start and the wait; `None` if the graph has no wait, for
            example because the collective is synchronous. For a graph with inductor code, the
            number of kernels and library calls that the code launches in between, because inductor
            decides the final order.
        node: the op.
        peer: for a send or receive, the other rank within the group; `None` if it can be any rank.
        overlap: ops that compute between start and wait, in order. Views, allocations, waits and
            collectives do not compute. For generated code, the names of kernels and called
            functions.
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
    peer: int | None = None
    overlap: tuple[str, ...] = ()

    @property
    def exposed(self) -> bool:
        """True if nothing computes between start and wait."""
        return self.distance is not None and not self.overlap

    def __str__(self) -> str:
        tensor = f" ({text})" if (text := format_tensor(self)) else ""
        module = f" in {self.module}" if self.module else ""
        wait = f", waited for {text}" if (text := format_wait(self)) else ""
        line = f" ({self.source})" if self.source is not None else ""
        return f"{format_over(self)}, {format_size(self)}{tensor}{module}{wait}{line}"

    def __repr__(self) -> str:
        return f"<{self}>"


class Collectives(tuple[Collective, ...]):
    """The collectives of graphs, in order. `print` shows a table with one line per collective."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_collectives(self)


def collectives_of(graphs: Iterable[Graph]) -> tuple[Collective, ...]:
    """Return the collectives of graphs and of the bodies they run, in execution order.

    Raises:
        CaptureError: for a graph of torch functions in which a `DTensor` is redistributed. Also for
            a graph that calls a hook, a module that communicates, or the backward of an
            `autograd.Function`.
    """
    return tuple(
        collective for graph in graphs for collective in _iter_collectives(graph, graph.name)
    )


def _iter_collectives(graph: Graph, graph_name: str) -> Iterator[Collective]:
    """Yield the collectives of a graph or a body; `graph_name` is that of the outermost graph."""
    calls = [node for node in graph.nodes if node.is_call and not is_projection_node(graph, node)]
    waits: dict[str, int] | None = None  # not searched in a graph without collectives
    for position, node in enumerate(calls):
        hidden = hides_collectives(node.op, dispatched=graph.level in ATEN_LEVELS)
        if hidden or (_is_declared_collective(node) and node.kind == "call_module"):
            raise CaptureError(
                f"unknown collective: %{node.name} ({node.op}) decides at run time what it "
                "communicates. Capture via 'aot' or 'dispatch', or for a watch, use "
                "capture.at('aot')"
            )
        if node.op == CALL_BACKWARD_OP:
            raise CaptureError(
                f"unknown collectives: %{node.name} ({node.op}) runs a backward in Python, whose "
                "communication is in no graph. Capture via 'dispatch', 'aot' or 'inductor'"
            )
        call = executed(node)
        kinds = _kinds_of(call)
        if kinds:
            waits = _find_first_waits(graph, calls) if waits is None else waits
            wait_position = waits.get(node.name)
            between = None if wait_position is None else calls[position + 1 : wait_position]
            peers = peers_of(call.op, call.args, len(kinds))
            parts = zip(kinds, _moved_tensors(graph, call, kinds), peers, strict=True)
            for kind, moved, peer in parts:
                first = moved[0] if moved else None
                yield Collective(
                    kind,
                    group=_find_group(node, graph.groups),
                    bytes=total_bytes(moved),
                    dtype=first.dtype if first else "",
                    shape=first.shape if first else (),
                    module=node.module,
                    source=node.source,
                    graph=graph_name,
                    distance=None if between is None else len(between),
                    node=node,
                    peer=peer,
                    overlap=tuple(other.op for other in between or () if _is_computation(other)),
                )
        for run in runs(graph, node):
            for _ in range(run.counted):
                yield from _iter_collectives(run.body, graph_name)


def communicates(node: Node) -> bool:
    """Return True if an op is a collective. A wait is not a collective."""
    return bool(_kinds_of(executed(node)))


def _kinds_of(node: Node) -> tuple[str, ...]:
    return collective_kinds(node.op, node.args, communicates=_is_declared_collective(node))


def _is_declared_collective(node: Node) -> bool:
    """Return True if the capture recorded that an op communicates."""
    return any(effect.kind == "communicates" for effect in node.effects)


def _is_computation(node: Node) -> bool:
    """Return True if a node computes a tensor and does not communicate."""
    op = node.op
    if without_overload(op) in NO_WORK or op in WAITS or _PASSES_ON.match(op) or communicates(node):
        return False
    # Other ops read sizes, compare metadata or assert.
    return any(tensors(node.result)) or any(effect.kind == "mutates" for effect in node.effects)


def _find_first_waits(graph: Graph, calls: Sequence[Node]) -> dict[str, int]:
    """Return the position among the calls of the first wait for each collective, by name."""
    waits: dict[str, int] = {}
    for position, node in enumerate(calls):
        for ref in node.refs if node.op in WAITS else ():
            waits.setdefault(_find_start(graph, graph.by_name[ref]).name, position)
    return waits


def _find_start(graph: Graph, node: Node) -> Node:
    """Return the collective of an awaited value. The value may be a view of one of its results."""
    while not collective_kinds(node.op, node.args):
        base = producer_of(graph, node) or viewed_by(graph, node)
        if base is None or base.op in WAITS:
            break
        node = base
    return node


def _find_group(node: Node, known_groups: Container[str]) -> str:
    """Return the process group of a collective: a keyword, or else one of the string arguments.

    Among the string arguments, the group is the last one that names a known group. If none does, it
    is the last one that is not a reduction such as "sum".
    """
    for key in ("group_name", "process_group"):
        if isinstance(node.kwargs.get(key), str):
            return str(node.kwargs[key])
    texts = [arg for arg in node.args if isinstance(arg, str) and arg not in REDUCTIONS]
    return ([text for text in texts if text in known_groups] or texts or [""])[-1]


def _moved_tensors(graph: Graph, node: Node, kinds: Sequence[str]) -> list[Sequence[TensorMeta]]:
    """Return the tensors to count for each part: the larger of its input and its output.

    A part is one of the collectives that the op runs, as `kinds` lists them.
    """
    parts = len(kinds)
    if kinds == ("barrier",):  # c10d passes a tensor that only states the device
        return [()]
    operand_tensors = [list(_tensors_of(graph, arg)) for arg in (*node.args, *node.kwargs.values())]
    if parts > 1:  # several sends and receives at once, each of one tensor
        one_per_part = next((operand for operand in operand_tensors if len(operand) == parts), [])
        return [[tensor] for tensor in one_per_part] if one_per_part else [[]] * parts
    sides = [*operand_tensors, list(tensors(node.result))]
    return [max(sides, key=_sort_size)]


def _sort_size(side: Sequence[TensorMeta]) -> float:
    """Return the total bytes of tensors; an unknown total is larger than any known total."""
    total = total_bytes(side)
    return math.inf if total is None else total


def _tensors_of(graph: Graph, arg: Any) -> Iterator[TensorMeta]:
    if isinstance(arg, Ref):
        yield from tensors(graph.by_name[arg.name].result)
    elif isinstance(arg, tuple):
        for item in arg:
            yield from _tensors_of(graph, item)


def total_bytes(metas: Iterable[TensorMeta]) -> int | None:
    """Return the total bytes of tensors; `None` if a size is a symbol."""
    total = 0
    for tensor in metas:
        sizes = [size for size in tensor.shape if isinstance(size, int)]
        if len(sizes) < len(tensor.shape):
            return None
        total += math.prod(sizes) * item_size(tensor.dtype)
    return total
