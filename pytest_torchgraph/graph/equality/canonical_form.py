"""Canonical form of graphs, in which they are compared and stored.

Ops that compute the same are written as one op, because torch releases disagree on ops that move no
data:

- One release wraps saved values and gradients in `aten.detach`, the next does not. Below autograd,
  a detach is only another name for the same tensor. In a graph that the user passed in, a detach
  counts like any other op, because autograd added none.
- `aten.view`, `aten._unsafe_view` and `aten.reshape` return the same values in a different shape.
  If a reshape copies, there is a `clone` next to it.
- An exported program has a `contiguous` instead of the `clone`. In one release it is an op before
  the view, in the next it is part of the reshape. The program may also contain an unused `empty`.

The graph itself keeps the ops that torch ran, and so do its op counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...ops.matching import ATEN_LEVELS
from ...words import is_index
from ..cost import with_savers
from ..model import Arg, Graph, Node, Ref, iter_refs, map_arg, map_node
from ..step import Link

BELOW_AUTOGRAD = ATEN_LEVELS
"""Levels of graphs to which autograd has already been applied."""

ALIAS_OP = "aten.detach.default"
"""Below autograd, an op whose result is its argument."""
SAME_OPS = {
    "aten._unsafe_view.default": "aten.view.default",
    "aten.reshape.default": "aten.view.default",
}
"""Maps each op to the canonical op that computes the same."""

TANGENT = "tangent"
"""Op of the gradient of an output, an input of a backward."""
VIEW_OP = "aten.view.default"
CONTIGUOUS_OP = "aten.contiguous.default"
"""Op that forms, together with the following view, a reshape in an exported program."""
EMPTY_OP = "aten.empty.memory_format"
"""Op that has no effect if its result is unused."""


def canonical_op(op: str) -> str:
    """Return the canonical op of all ops that compute the same as `op`."""
    return SAME_OPS.get(op, op)


def canonical(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """Return the canonical form of one capture's graphs, in which a forward precedes its backward.

    If a saved input of a backward is an alias, it takes the name of the original value. Several
    aliases of one value become one input. In eager graphs, no input is renamed.
    """
    names: dict[str, str] = {}
    canonical_graphs = []
    for graph in graphs:
        if graph.eager:
            canonical_graphs.append(canonical_graph(graph))
            continue
        # Only its forward knows that a saved input is an alias.
        if graph.kind == "backward" and graph.level in BELOW_AUTOGRAD:
            graph = _rename_saved(graph, names)
        aliases = aliases_of(graph)
        canonical_graphs.append(_drop_aliases(graph, aliases))
        names.update(aliases)
    if any(graph.calls for graph in graphs):
        canonical_graphs = _rename_links(graphs, canonical_graphs, names)
    return with_savers(canonical_graphs)


def _rename_links(
    graphs: Sequence[Graph], canonical_graphs: Sequence[Graph], names: Mapping[str, str]
) -> list[Graph]:
    """Return canonical graphs whose calls link the original values, not their aliases.

    Args:
        graphs: the graphs as they were captured.
        canonical_graphs: their canonical forms, with the former links.
        names: original value of each alias in all graphs.
    """
    aliases = {call.number: aliases_of(graph) for graph in graphs for call in graph.calls or ()}

    def source(link: Link) -> Link:
        return link._replace(name=aliases.get(link.call, {}).get(link.name, link.name))

    renamed = []
    for graph in canonical_graphs:
        calls = []
        for call in graph.calls or ():
            # An input that was an alias has the name of its original in the canonical graph.
            inputs = {
                name if name in graph.by_name else names.get(name, name): source(link)
                for name, link in call.inputs.items()
            }
            results = {label: source(link) for label, link in call.results.items()}
            calls.append(replace(call, inputs=inputs, results=results))
        renamed.append(replace(graph, calls=None if graph.calls is None else tuple(calls)))
    return renamed


def canonical_graph(graph: Graph) -> Graph:
    """Return the canonical form of one graph. A canonical graph is returned unchanged."""
    return _drop_aliases(graph, aliases_of(graph))


def _tangents_in_order(graph: Graph) -> Graph:
    """Return a graph that takes its tangents in the order of their outputs.

    A recorded backward takes them in the order in which it uses them, which follows the order of
    independent statements.
    """
    tangents = [node for node in graph.inputs if node.op == TANGENT]
    ordered = sorted(tangents, key=_output_number)
    if ordered == tangents:
        return graph
    others = [node for node in graph.inputs if node.op != TANGENT]
    rest = [node for node in graph.nodes if node.kind != "placeholder"]
    return replace(graph, nodes=(*others, *ordered, *rest))


def _output_number(tangent: Node) -> int:
    """Return the number of the output that a tangent is the gradient of, 0 if it has none."""
    number = tangent.name.removeprefix(f"{TANGENT}.")
    return int(number) if is_index(number) else 0


def _drop_aliases(graph: Graph, aliases: Mapping[str, str]) -> Graph:
    """Return the canonical form of a graph, without its aliases."""
    graph = _tangents_in_order(graph)
    subgraphs = tuple(map(canonical_graph, graph.subgraphs))
    unused = _find_unused_memory(graph)
    if aliases or unused or any(node.op in SAME_OPS for node in graph.nodes):
        left_out = unused.union(aliases)
        remaining = [node for node in graph.nodes if node.name not in left_out]
        # A value that is saved under several names is saved once.
        saved = dict.fromkeys(map_arg(graph.saved, _renaming(aliases)))
        nodes = tuple([_rewrite_node(node, aliases) for node in remaining])
        output = map_arg(graph.output, _renaming(aliases))
        return replace(graph, nodes=nodes, saved=tuple(saved), subgraphs=subgraphs, output=output)
    if any(new is not old for new, old in zip(subgraphs, graph.subgraphs, strict=True)):
        return replace(graph, subgraphs=subgraphs)
    return graph


def aliases_of(graph: Graph) -> dict[str, str]:
    """Map the name of each alias to the name of the original value; see the module docstring."""
    originals: dict[str, str] = {}
    # Of 84 test subjects, 18 had the same text on torch 2.9, 2.11, 2.13 and 2.15. Leaving out
    # aliases, `SAME_OPS`, the order of saved values and a cuDNN flag raises this to 56.
    if graph.level in BELOW_AUTOGRAD and not graph.given:
        for node in graph.nodes:
            if node.op == ALIAS_OP and len(node.args) == 1 and isinstance(node.args[0], Ref):
                source = node.args[0].name
                originals[node.name] = originals.get(source, source)
    elif graph.level == "export" and any(node.op == CONTIGUOUS_OP for node in graph.nodes):
        for node in _contiguous_before_views(graph):
            source = node.refs[0]
            originals[node.name] = originals.get(source, source)
    return originals


def _contiguous_before_views(graph: Graph) -> list[Node]:
    """Return the `contiguous` nodes of an exported program that are used only by views."""
    uses = _count_uses(graph)
    viewed = Counter(
        node.args[0].name
        for node in graph.nodes
        if canonical_op(node.op) == VIEW_OP and node.args and isinstance(node.args[0], Ref)
    )
    return [
        node
        for node in graph.nodes
        if node.op == CONTIGUOUS_OP
        and len(node.args) == len(node.refs) == 1
        and not node.kwargs
        # Any other user needs the contiguous copy, so keep a node that has one.
        and 0 < uses[node.name] == viewed[node.name]
    ]


def _find_unused_memory(graph: Graph) -> frozenset[str]:
    """Return the names of an exported program's nodes that allocate unused memory."""
    # Some releases of torch leave an unused `aten.empty` in exported programs.
    if graph.level != "export" or not any(node.op == EMPTY_OP for node in graph.nodes):
        return frozenset()
    uses = _count_uses(graph)
    return frozenset(n.name for n in graph.nodes if n.op == EMPTY_OP and not uses[n.name])


def _count_uses(graph: Graph) -> Counter[str]:
    """Count the references to each value: arguments, effects, order and saved values."""
    uses = Counter(ref.name for ref in graph.saved)
    for node in graph.nodes:
        targets = tuple([effect.target for effect in node.effects])
        uses.update(ref.name for ref in iter_refs((node.args, node.kwargs, node.after, targets)))
    return uses


def _rename_saved(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return a backward whose saved inputs have the names of their original values.

    Args:
        names: original value of each alias in the preceding graphs.
    """
    saved = {node.name for node in graph.inputs if node.op == "saved"}
    renames = {name: names[name] for name in saved & names.keys()}
    other_names = graph.by_name.keys() - saved
    # If another node of the backward has the name of the original value, the alias keeps its name.
    renames = {name: source for name, source in renames.items() if source not in other_names}
    if not renames:
        return graph
    nodes: dict[str, Node] = {}
    for node in graph.nodes:
        node = _rewrite_node(replace(node, name=renames.get(node.name, node.name)), renames)
        # Several aliases of one value now have one name. Only the first input stays.
        nodes.setdefault(node.name, node)
    return replace(graph, nodes=tuple(nodes.values()))


def _rewrite_node(node: Node, names: Mapping[str, str]) -> Node:
    """Return the node with its canonical op and renamed references."""
    op = canonical_op(node.op)
    if not names or not _mentions(node, names):
        return node if op == node.op else replace(node, op=op)
    return map_node(node, _renaming(names), op=op)


def _mentions(node: Node, names: Mapping[str, str]) -> bool:
    """Return True if the node refers to one of `names`."""
    # Most nodes have only positional arguments, which are cheaper to look at one by one.
    if node.kwargs or node.effects or node.after:
        targets = tuple([effect.target for effect in node.effects])
        return any(
            ref.name in names for ref in iter_refs((node.args, node.kwargs, node.after, targets))
        )
    for value in node.args:
        if type(value) is Ref:
            if value.name in names:
                return True
        elif isinstance(value, (tuple, dict, slice)) and any(
            ref.name in names for ref in iter_refs(value)
        ):
            return True
    return False


def _renaming(names: Mapping[str, str]) -> Callable[[Arg], Arg]:
    """Return a function that renames a reference to one of `names`."""

    def rename(value: Arg) -> Arg:
        return Ref(names[value.name]) if type(value) is Ref and value.name in names else value

    return rename
