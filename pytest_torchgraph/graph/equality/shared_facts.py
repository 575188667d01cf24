"""Facts that only one of two graphs has, which are not compared, and the order of parameters.

`drop_unshared_facts` is called before each comparison of two graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..digits import in_same_digits
from ..model import INPUT_OPS, Graph, Node
from ..step import MATCHED_BY_NAME
from .numbered_graph import KINDS_WITH_GRADIENT_SUMS, is_constant


def drop_unshared_facts(a: Graph, b: Graph) -> tuple[Graph, Graph]:
    """Return two graphs without the facts that only one of them has.

    The parameters and buffers of `b` get the order of `a`. The same objects are returned if nothing
    changes.
    """
    # A given graph has aliases as ops, a captured one has not.
    if a.given != b.given:
        a, b = as_captured(a), as_captured(b)
    a, b = in_same_digits(a, b)  # floats of both rounded to the fewer digits
    # The operands of a sum have no order in a backward. A graph of one module of a backward has the
    # kind "forward", so compare both as such.
    if (a.kind in KINDS_WITH_GRADIENT_SUMS) != (b.kind in KINDS_WITH_GRADIENT_SUMS):
        a, b = (
            replace(g, kind="forward") if g.kind in KINDS_WITH_GRADIENT_SUMS else g for g in (a, b)
        )
    if (a.output is None) != (b.output is None):
        a, b = replace(a, output=None), replace(b, output=None)
    # A graph without constants lacks no value, and one without torch's modules lacks no
    # options.
    for known_facts, without in (
        (_known_constants, _without_constant_values),
        (_known_options, _without_options),
    ):
        # A flag for each constant or option. Drop them if one graph knows some, the other none.
        known = [known_facts(graph) for graph in (a, b)]
        if all(known) and any(known[0]) != any(known[1]):
            a, b = without(a), without(b)
    if (a.saver is None) != (b.saver is None):
        a, b = replace(a, saver=None), replace(b, saver=None)
    elif a.saver is not None and b.saver is not None:
        # A backward returns its gradients in the order of the forward's inputs.
        saver = with_inputs_in_order(a.saver, b.saver)
        if saver is not b.saver:
            nodes = _with_gradients_in_order(b.nodes, b.saver.inputs, saver.inputs)
            b = replace(b, nodes=nodes, saver=saver)
    return a, with_inputs_in_order(a, b)


def with_inputs_in_order(a: Graph, b: Graph) -> Graph:
    """Return graph `b` with its parameters and buffers in the order of `a`, matched by name.

    An input whose name both graphs have takes the position that it has in `a`. The other inputs
    fill the remaining positions in order.
    """
    inputs_a = [node for node in a.inputs if node.op in MATCHED_BY_NAME]
    inputs_b = [node for node in b.inputs if node.op in MATCHED_BY_NAME]
    names = [node.name for node in inputs_a]
    if names == [node.name for node in inputs_b]:
        return b
    by_name = {node.name: node for node in inputs_b}
    shared = [name for name in names if name in by_name]
    shared_names = set(shared)
    # The inputs that both have are in order already.
    if shared == [node.name for node in inputs_b if node.name in shared_names]:
        return b
    others = iter([node for node in inputs_b if node.name not in shared_names])
    ordered: list[Node] = []
    if len(inputs_a) == len(inputs_b):
        ordered = [by_name[name] if name in shared_names else next(others) for name in names]
    else:  # Added and removed inputs keep their positions among the other inputs.
        in_turn = iter(shared)
        ordered = [by_name[next(in_turn)] if n.name in shared_names else n for n in inputs_b]
    next_inputs = iter(ordered)
    nodes = [
        next(next_inputs) if node.kind == "placeholder" and node.op in MATCHED_BY_NAME else node
        for node in b.nodes
    ]
    return replace(b, nodes=tuple(nodes))


def _with_gradients_in_order(
    nodes: Sequence[Node], before: Sequence[Node], after: Sequence[Node]
) -> tuple[Node, ...]:
    """Return the nodes of a backward with the gradients that it returns in another order.

    Args:
        nodes: the nodes.
        before, after: the inputs of its saver, in the old and in the new order.
    """
    *others, output = nodes
    gradients = output.args[0]
    inputs = inputs_of_gradients(gradients, before) if isinstance(gradients, tuple) else ()
    if inputs:
        by_name = dict(zip([node.name for node in inputs], gradients, strict=True))
        ordered = tuple(by_name[node.name] for node in after if node.name in by_name)
        output = replace(output, args=(ordered,))
    return (*others, output)


def inputs_of_gradients(returned: Sequence[object], inputs: Sequence[Node]) -> Sequence[Node]:
    """Return the inputs of a forward whose gradients its backward returns, in order; () if unknown.

    A compiled backward returns a gradient, or `None`, for each input. An eager one returns only
    gradients, parameters first, so these are known if there is one for each parameter.

    Args:
        returned: what the backward returns.
        inputs: the inputs of the forward.
    """
    for roles in (INPUT_OPS, ("parameter",)):
        found = [node for node in inputs if node.op in roles]
        if len(found) == len(returned):
            return found
    return ()


def _known_constants(graph: Graph) -> list[bool]:
    """Return for each constant whether its value is known."""
    nodes = (node for part in graph.walk() for node in part.nodes)
    return [bool(node.args) for node in nodes if is_constant(node)]


def _without_constant_values(graph: Graph) -> Graph:
    return graph.map_nodes(
        lambda node: replace(node, args=()) if is_constant(node) and node.args else node
    )


def _known_options(graph: Graph) -> list[bool]:
    """Return for each call of one of torch's modules whether its options are known."""
    calls = (n for part in graph.walk() for n in part.nodes if n.kind == "call_module")
    # Modules of other classes have no known options; see `module_options`.
    return [node.options is not None for node in calls if node.op.startswith("torch.")]


def _without_options(graph: Graph) -> Graph:
    return graph.map_nodes(
        lambda node: node if node.options is None else replace(node, options=None)
    )


def as_captured(graph: Graph) -> Graph:
    """Mark a graph that the user passed in as captured, so that its aliases count as no-ops."""
    if not graph.given:
        return graph
    return replace(graph, given=False, subgraphs=tuple(map(as_captured, graph.subgraphs)))
