"""Storages of a step: the graphs that made them, and the storages saved for the backward.

Saved bytes are counted by storage, because the sum of the saved values' sizes can be many times too
large. A saved view keeps the storage of its base alive, and two views of one storage count once.
Parameters, buffers, constants and inputs exist anyway, so neither they nor their views, such as a
transposed weight, are counted. The storage of a body's result is looked up in the body.

A step that is divided by graph breaks is read as one (`graph.step.joined`). If it is unknown which
value of a graph enters which other graph, its graphs are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...errors import CaptureError
from ...ops.dtypes import item_size
from ...ops.matching import FLOP_LEVELS, SAVING_LEVELS
from ...ops.views import shared_argument
from ..census import is_projection_node, operands_of, outputs_of, runs
from ..higher_order import KINDS, executed
from ..model import Graph, Node, Ref, Result, Symbol, TensorMeta
from ..sizes import advice
from ..step import joined


def owners_of_saved(graph: Graph) -> Iterator[Node]:
    """Yield the ops that allocated the storages saved by a graph, each once, without inputs."""
    yielded: set[str] = set()
    for ref in graph.saved:
        node = find_base(graph, ref)
        if node.is_call and node.name not in yielded:
            yielded.add(node.name)
            yield node


def find_base(graph: Graph, ref: Ref) -> Node:
    """Return the node that allocated the storage of a value, or the input that owns it."""
    node = graph.by_name[ref.name]
    while (viewed := viewed_by(graph, node)) is not None:
        node = viewed
    return node


def viewed_by(graph: Graph, node: Node) -> Node | None:
    """Return the node whose storage a node shares, or `None` if the node owns its storage."""
    if not node.is_call:
        return None
    producer = producer_of(graph, node)
    body = _body_called_by(graph, producer) if graph.subgraphs and producer is not None else None
    if producer is not None and body is not None:
        return _viewed_through(graph, node, producer, body)
    viewed = _viewed_argument(executed(producer or node))
    base = None if viewed is None else graph.by_name[viewed.name]
    # `torch.tensor` makes a new constant in each run.
    is_made = node.op == "aten.lift_fresh.default" and base is not None and base.op == "constant"
    return None if is_made else base


def _body_called_by(graph: Graph, node: Node) -> Graph | None:
    """Return the body that a call runs exactly once on its remaining arguments, or `None`.

    Only then are the call's results those of the body.
    """
    called = runs(graph, node)
    return called[0].body if len(called) == 1 and KINDS.get(node.op) == "call" else None


def _find_maker(body: Graph, index: object) -> Node | None:
    """Return the node or input of a body that owns the storage of a result; `None` if unknown.

    Args:
        body: the body.
        index: the number of the result. In a file it can be anything.
    """
    outputs = outputs_of(body)
    if not isinstance(index, int) or not 0 <= index < len(outputs):
        return None
    output = outputs[index]
    return find_base(body, output) if isinstance(output, Ref) else None


def _viewed_through(graph: Graph, node: Node, producer: Node, body: Graph) -> Node | None:
    """Return the node whose storage a result of a body shares; `None` if it shares none.

    The node is an operand of the call, or the first result of the call with the same storage.
    """
    maker = _find_maker(body, node.args[1])
    if maker is None:
        return None
    if not maker.is_call:
        inputs, operands = body.inputs, operands_of(producer)
        operand = operands[inputs.index(maker)] if len(inputs) == len(operands) else None
        return graph.by_name[operand.name] if isinstance(operand, Ref) else None
    same_indices = {
        index for index in range(len(outputs_of(body))) if _find_maker(body, index) is maker
    }
    if len(same_indices) == 1:
        return None
    # Several results share a storage that the body made. The first of them counts as its owner.
    sharing = (
        other
        for other in graph.nodes
        if producer_of(graph, other) is producer and other.args[1] in same_indices
    )
    first = next(sharing, node)
    return None if first is node else first


def producer_of(graph: Graph, node: Node) -> Node | None:
    """Return the multi-output op of a projection, or `None` if the node is not a projection."""
    return graph.by_name[node.refs[0]] if is_projection_node(graph, node) else None


def need_saved(graphs: Sequence[Graph]) -> None:
    """Reject graphs that do not record the values saved for the backward.

    Raises:
        CaptureError: for graphs of a level that does not record saved values, or if a backward has
            inputs that no forward saves.
    """
    unknown = {graph.level for graph in graphs} - SAVING_LEVELS
    if unknown:
        raise CaptureError(
            f"saved bytes are unknown: graphs at level {min(unknown)!r} do not record what is "
            "saved for the backward. Capture via 'aot' or 'dispatch', or for a watch, use "
            "capture.at('aot')"
        )
    # Eager graphs name the graph that made each input, so nothing is unknown there.
    forwards = [graph for graph in graphs if graph.kind == "forward" and not graph.eager]
    saved = {ref.name for graph in forwards for ref in graph.saved}
    backwards = [graph for graph in graphs if graph.kind == "backward" and not graph.eager]
    for graph in backwards:
        # A backward of compiled autograd also takes values that eager ops saved. No forward has
        # the names of these values. For any other backward, it is enough if a forward saves values.
        takes_eager_values = graph.level == "compiled_autograd"
        for node in graph.inputs:
            is_unsaved = node.name not in saved if takes_eager_values else forwards and not saved
            if node.op == "saved" and is_unsaved:
                raise CaptureError(
                    f"saved bytes are unknown: {graph.name} uses %{node.name}, which no compiled "
                    "forward saves. Capture via 'aot' or 'dispatch'"
                )


def _viewed_argument(node: Node) -> Ref | None:
    """Return the argument whose storage a node's result shares; `None` if it shares none."""
    position = shared_argument(node.op)
    if position is None or position >= len(node.args):
        return None
    viewed = node.args[position]
    return viewed if isinstance(viewed, Ref) else None


def storage_bytes(node: Node, graph: Graph | None = None) -> int:
    """Return the bytes of the storage that a node allocates; 0 if the result is not a tensor.

    Args:
        node: the node.
        graph: graph of the node, for a result that may be a view of a body's result.
    """
    producer = producer_of(graph, node) if graph is not None and graph.subgraphs else None
    body = None if producer is None or graph is None else _body_called_by(graph, producer)
    maker = None if body is None else _find_maker(body, node.args[1])
    if maker is not None and maker.is_call:
        return storage_bytes(maker, body)
    return _bytes_of(node, node.result)


def storage_bytes_if_known(node: Node, graph: Graph | None = None) -> int | None:
    """Return `storage_bytes`, or `None` if a size is a symbol."""
    try:
        return storage_bytes(node, graph)
    except CaptureError:
        return None


def results_bytes(node: Node) -> Iterator[int]:
    """Yield the bytes of each result of a multi-output op."""
    for result in node.result if isinstance(node.result, tuple) else ():
        yield _bytes_of(node, result)


def _bytes_of(node: Node, result: Result) -> int:
    """Return the bytes of one result of a node. Raise a `CaptureError` if a size is a symbol."""
    if not isinstance(result, TensorMeta):
        return 0
    for size in result.shape:
        if isinstance(size, Symbol):
            raise CaptureError(
                f"the bytes of %{node.name} ({node.op}), which is saved for the backward, depend "
                f"on the symbolic size {size.expr}: {advice(size)}"
            )
    sizes = (size for size in result.shape if isinstance(size, int))
    return prod(sizes) * item_size(result.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class KeptStorage:
    """A storage that a step saves for its backward.

    Attributes:
        node: op that allocated the storage; for a multi-output op, the projection.
        graph: graph that allocated the storage.
        bytes: size of the storage, times the number of runs that save it.
    """

    node: Node
    graph: Graph
    bytes: int


def kept(graphs: Sequence[Graph], *, times_run: bool = True) -> Iterator[KeptStorage]:
    """Yield the storages that graphs save, each once.

    Args:
        graphs: graphs of a step, in execution order.
        times_run: multiply each graph's storages by its run count.

    Raises:
        CaptureError: if the saved values are unknown, or if a size is a symbol.
    """
    need_saved(graphs)
    graphs = joined(graphs).graphs if times_run else graphs
    storages = StepStorages(graphs)
    yielded: set[tuple[int, str]] = set()
    for keeper in graphs:
        for ref in _iter_kept_refs(keeper, storages):
            maker, node = storages.find_base(keeper, ref)
            if node.is_call and (id(maker), node.name) not in yielded:
                yielded.add((id(maker), node.name))
                # A storage that is made once is kept once, however often it is saved.
                times = min(keeper.runs, maker.runs) if times_run else 1
                yield KeptStorage(node, maker, storage_bytes(node, maker) * times)


def saved_bytes(graphs: Sequence[Graph]) -> int:
    """Return the total bytes of the storages that graphs save; see `kept`."""
    return sum(storage.bytes for storage in kept(graphs))


def _iter_kept_refs(graph: Graph, storages: StepStorages) -> Iterator[Ref]:
    """Yield the values that a graph saves, or that eager autograd saved for an eager backward."""
    yield from graph.saved
    if graph.eager and graph.kind == "backward":
        for node in graph.inputs:
            # Gradients come from another backward, and are not saved.
            maker, _ = storages.find_base(graph, Ref(node.name))
            if maker.kind != "backward":
                yield Ref(node.name)


class StepStorages:
    """Shared storages of the values of several graphs.

    Args:
        graphs: graphs of a step, in execution order.

    Attributes:
        forward_of: for each backward, by `id`, the forward that saved its inputs.
    """

    def __init__(self, graphs: Sequence[Graph]):
        self._by_name = {graph.name: graph for graph in graphs}
        self._bases: dict[int, dict[str, tuple[Graph, Node]]] = {}
        self.forward_of = {
            id(graph): self._by_name[graph.saver.name]
            for graph in graphs
            if graph.saver is not None and graph.saver.name in self._by_name
        }

    def find_base(self, graph: Graph, ref: Ref) -> tuple[Graph, Node]:
        """Return the node that allocated a value's storage, or the owning input, with its graph."""
        return self.bases(graph)[ref.name]

    def bases(self, graph: Graph) -> Mapping[str, tuple[Graph, Node]]:
        """Return the result of `find_base` for each node of a graph, by name.

        One pass over the nodes is fast even if views form long chains.
        """
        if id(graph) in self._bases:
            return self._bases[id(graph)]
        bases_of_graph = self._bases[id(graph)] = {}
        for node in graph.nodes:
            viewed = viewed_by(graph, node)
            if viewed is not None:
                bases_of_graph[node.name] = bases_of_graph[viewed.name]
                continue
            # An input has the storage of the value that another graph passed to it.
            source = None if node.is_call else self._find_source(graph, node)
            bases_of_source = {} if source is None else self.bases(source[0])
            # In a file, two graphs can state each other as the source. Each then owns its value.
            name = "" if source is None else source[1]
            bases_of_graph[node.name] = bases_of_source.get(name, (graph, node))
        return bases_of_graph

    def _find_source(self, graph: Graph, node: Node) -> tuple[Graph, str] | None:
        """Return the graph and the name of the value passed to an input; `None` if unknown.

        It is unknown for an input of the step. Names of inputs of eager graphs state the graph.
        """
        forward = self.forward_of.get(id(graph))
        if forward is not None:
            is_saved = node.op != "tangent" and node.name in forward.by_name
            return (forward, node.name) if is_saved else None
        name, _, value = node.name.partition(":")
        maker = self._by_name.get(name)
        return (maker, value) if maker is not None and value in maker.by_name else None


def _saved_names(graph: Graph) -> set[str]:
    """Return the names of the saved values except constants."""
    constants = {node.name for node in graph.inputs if node.op == "constant"}
    return {ref.name for ref in graph.saved} - constants


def with_savers(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """Return the graphs of a capture, each backward with the forward that saved its inputs.

    The forward with the backward's number is tried first, then the other earlier forwards, latest
    first. The saver is the first one that has every saved value of the backward; `None` if none
    has. If a backward takes only inputs of its forward, the saver is the latest forward that saves
    exactly these inputs.
    """
    linked: list[Graph] = []
    forwards: dict[str, Graph] = {}
    for graph in graphs:
        if graph.kind == "backward" and not graph.eager:
            saved = {node.name for node in graph.inputs if node.op == "saved"}
            same_number = forwards.get(graph.name.replace("backward", "forward", 1))
            candidates = [same_number, *reversed(forwards.values())] if saved else []
            if graph.level == "compiled_autograd":  # takes the parameters that get a gradient too
                candidates.append(same_number)
            saver = next((f for f in candidates if f and saved <= f.by_name.keys()), None)
            if saver is None and not saved:
                # At a low memory budget, a forward saves only its inputs. Several forwards may have
                # an input of the same name, so a forward counts as the one that saved for this
                # backward only if it saves exactly the backward's inputs.
                inputs = {n.name for n in graph.inputs if n.op not in ("tangent", "constant")}
                latest = reversed(forwards.values()) if inputs else ()
                saver = next((f for f in latest if inputs == _saved_names(f)), None)
            graph = replace(graph, saver=saver)
        elif graph.kind == "forward" and not graph.eager:
            forwards[graph.name] = graph
        linked.append(graph)
    return tuple(linked)


def flops_by_node(graph: Graph) -> dict[str, int | None]:
    """Return the floating-point operations of each call, by node name.

    The value is `None` if torch has no formula for an op that does work, or if a size is a symbol.
    A higher-order op has the FLOPs of its bodies.

    Raises:
        CaptureError: for a graph of torch functions; see `Graph.flops`.
    """
    from .flops import flops_if_known, flops_of  # with torch, which nothing else here needs

    if graph.level not in FLOP_LEVELS:
        flops_of(graph)  # raises with the reason
    return {node.name: flops_if_known(graph, node) for node in graph.nodes if node.is_call}


def saved_by_node(graph: Graph) -> dict[str, int | None] | None:
    """Return the bytes saved for the backward, by the name of the op that allocated the storage.

    A value is `None` if a size is a symbol. The result is `None` if the graph does not record its
    saved values.
    """
    if graph.level not in SAVING_LEVELS:
        return None
    return {node.name: storage_bytes_if_known(node, graph) for node in owners_of_saved(graph)}
