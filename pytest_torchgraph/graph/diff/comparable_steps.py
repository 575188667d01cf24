"""Two captures as steps that can be compared: inlined, with what a division changes in one form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from ..model import Arg, Graph, Node, Ref, TensorMeta
from ..step import SUM_OP, InlinedStep, in_order, inlined, is_divided, needs_links


def comparable_steps(
    before: Sequence[Graph], after: Sequence[Graph]
) -> tuple[InlinedStep, InlinedStep] | None:
    """Return two captures as inlined steps.

    `None` if nothing divides either capture, or if one of them cannot be inlined. If only one of
    the two is divided, the forward of the other does not return the new values of its buffers; see
    `_without_updates`.
    """
    divided = [is_divided(side) or needs_links(side) for side in (before, after)]
    # An update alone is no step.
    are_steps = all(any(graph.kind != "update" for graph in side) for side in (before, after))
    if not any(divided) or not are_steps:
        return None
    steps = []
    for side, is_split in zip((before, after), divided, strict=True):
        backwards = sum(graph.kind == "backward" for graph in side)
        # An undivided side is a step already: one graph, or a forward and its backward.
        if not is_split and backwards == len(side) - 1 <= 1:
            steps.append(InlinedStep(in_order(side)))
        elif (step := inlined(side)) is not None:
            steps.append(step)
    if len(steps) < 2:
        return None
    # Only now are the results of both forwards known.
    for number, is_split in enumerate(divided):
        if not is_split:
            forward, *rest = steps[number].graphs
            forward = _without_updates(forward, len(steps[1 - number].graphs[0].outputs))
            steps[number] = steps[number]._replace(graphs=in_order([forward, *rest]))
    return _with_sums_in_order(steps[0]), _with_sums_in_order(steps[1])


def _without_updates(graph: Graph, count: int) -> Graph:
    """Return a forward without its first outputs, if they are the new values of buffers.

    AOTAutograd returns these before the target's results. So do the runs of a divided step, in
    which nothing takes them.

    Args:
        graph: a forward that nothing divides.
        count: the number of results of the other step.
    """
    extra = max(len(graph.outputs) - count, 0)
    buffers = [node for node in graph.inputs if node.op == "buffer"]
    updated = Counter(map(_kind_of, graph.outputs[:extra]))
    # Nothing tells the new values of buffers from results but their dtypes and shapes.
    if not updated or updated - Counter(map(_kind_of, buffers)):
        return graph
    *others, end = graph.nodes
    values = tuple(Ref(node.name) for node in graph.outputs[extra:])
    value: Arg = values[0] if len(values) == 1 else values
    return replace(graph, nodes=(*others, replace(end, args=(value,))))


def _kind_of(node: Node) -> Hashable:
    """Return dtype and shape of a tensor; `None` for any other value."""
    result = node.result
    return (result.dtype, result.shape) if isinstance(result, TensorMeta) else None


def _with_sums_in_order(step: InlinedStep) -> InlinedStep:
    """Return a step whose sums of two gradients name first what is computed first.

    A graph break that divides the step makes autograd add the two in another order.
    """
    graphs = []
    for graph in step.graphs:
        if graph.kind == "backward":
            computed = {node.name: number for number, node in enumerate(graph.nodes)}
            nodes = []
            for node in graph.nodes:
                is_sum = node.op == SUM_OP and len(node.args) == 2 and not node.kwargs
                if is_sum and all(type(arg) is Ref for arg in node.args):
                    terms = tuple(sorted(node.args, key=lambda ref: computed[ref.name]))
                    node = node if terms == node.args else replace(node, args=terms)
                nodes.append(node)
            graph = replace(graph, nodes=tuple(nodes))
        graphs.append(graph)
    return step._replace(graphs=tuple(graphs))
