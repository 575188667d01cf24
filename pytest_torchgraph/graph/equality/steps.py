"""Equality of two captures: of their graphs, of the links between them, and of their cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from ..model import Effect, EffectKind, Graph, Node, Ref
from ..step import Boundary, InlinedStep, Link, calls_of, crossed, inlined, is_divided, needs_links
from .canonical_form import aliases_of, canonical, canonical_graph
from .equal import pairing
from .numbered_graph import DIVIDES

_ORDERED = Effect(cast(EffectKind, DIVIDES))
"""Keeps the order of cuts."""


def equal_programs(a: Sequence[Graph], b: Sequence[Graph]) -> bool:
    """Return True if two captures have equal graphs with equal run counts, links and cuts."""
    if not any(is_divided(side) or needs_links(side) for side in (a, b)):
        return _have_equal_graphs(a, b)
    calls = calls_of(a), calls_of(b)
    if calls[0] is None or calls[1] is None:  # the links of one side are unknown
        return _have_equal_graphs(a, b)
    return _links_correspond(a, b) or (_sharing(a) == _sharing(b) and _are_equal_inlined(a, b))


def runs_differ(old: Graph, new: Graph) -> bool:
    """Return True if two graphs are known to have different run counts."""
    both_counted = (old.eager or old.counted) and (new.eager or new.counted)
    return both_counted and old.runs != new.runs


def _have_equal_graphs(a: Sequence[Graph], b: Sequence[Graph]) -> bool:
    """Return True if two captures have equal graphs in order, without their links."""
    return len(a) == len(b) and all(
        (old.kind, old.eager) == (new.kind, new.eager) and not runs_differ(old, new) and old == new
        for old, new in zip(canonical(a), canonical(b), strict=True)
    )


def _links_correspond(a: Sequence[Graph], b: Sequence[Graph]) -> bool:
    """Return True if the graphs are equal in order, and the links of one pairing correspond.

    This is the common case, and takes a third of the time of the general one. Values that are
    interchangeable in their graph may be paired otherwise than their links; then the answer is
    False although the steps may be equal.
    """
    if len(a) != len(b):
        return False
    names: list[dict[str, str]] = []
    for old, new in zip(canonical(a), canonical(b), strict=True):
        partners = pairing(old, new) if (old.kind, old.eager) == (new.kind, new.eager) else None
        if partners is None:
            return False
        names.append({n.name: new.nodes[j].name for n, j in zip(old.nodes, partners, strict=True)})
    # The new names of the values of each old call, and the originals of aliases on each side.
    renamed = {
        call.number: of_graph
        for graph, of_graph in zip(a, names, strict=True)
        for call in graph.calls or ()
    }
    originals = [
        {call.number: aliases_of(graph) for graph in side for call in graph.calls or ()}
        for side in (a, b)
    ]

    def source(link: Link, side: int) -> Link:
        """Return a link to the original of its value, under the new name."""
        name = originals[side].get(link.call, {}).get(link.name, link.name)
        if side == 0:
            name = renamed.get(link.call, {}).get(name, name)
        return link._replace(name=name)

    for old, new, of_graph in zip(a, b, names, strict=True):
        if len(old.calls or ()) != len(new.calls or ()):
            return False
        for first, second in zip(old.calls or (), new.calls or (), strict=True):
            links = {of_graph.get(k, k): source(link, 0) for k, link in first.inputs.items()}
            if (first.number, first.order) != (second.number, second.order) or links != {
                name: source(link, 1) for name, link in second.inputs.items()
            }:
                return False
            results = {label: source(link, 0) for label, link in first.results.items()}
            if results != {label: source(link, 1) for label, link in second.results.items()}:
                return False
    return True


def _sharing(graphs: Sequence[Graph]) -> list[int]:
    """Return the number of the compiled graph of each call, in program order.

    Graphs are numbered by their first call, so equal lists share their graphs alike.
    """
    numbers: dict[int, int] = {}
    return [
        numbers.setdefault(id(graph), len(numbers))
        for _, graph in calls_of(graphs) or ()
        if not graph.eager
    ]


def _are_equal_inlined(a: Sequence[Graph], b: Sequence[Graph]) -> bool:
    """Return True if two captures are equal as inlined steps, cuts included."""
    first, second = inlined(a), inlined(b)
    if first is None or second is None or len(first.graphs) != len(second.graphs):
        return False
    return all(
        old.kind == new.kind and old == new
        for old, new in zip(_with_cuts(first), _with_cuts(second), strict=True)
    )


def _with_cuts(step: InlinedStep) -> tuple[Graph, ...]:
    """Return the graphs of a step, with each cut as an op on the values that cross it."""
    forward, *others = step.graphs
    cuts = [
        Node(
            f"cut {number}",
            "call_function",
            f"cut.{'eager' if boundary.eager else 'compiled'}",
            effects=(_ORDERED,),
        )
        for number, boundary in enumerate(step.boundaries)
    ]
    plain = canonical_graph(forward)
    pairs = list(zip(step.boundaries, cuts, strict=True))
    divided = with_cuts(forward, plain, pairs, only_changes=True)
    # The saver of a backward has no cuts: these are compared once, in the forward.
    return divided, *(replace(other, saver=plain) for other in others)


def with_cuts(
    forward: Graph,
    plain: Graph,
    cuts: Sequence[tuple[Boundary, Node]],
    *,
    only_changes: bool = False,
) -> Graph:
    """Return the canonical form of an inlined forward, with a node at each of these cuts.

    Args:
        forward: the graph.
        plain: its canonical form.
        cuts: cuts in program order, each with its node. The values that cross the cut become the
            node's argument.
        only_changes: give the node only the values that do not cross the cut before, and those that
            cross the cut before and not this one. All values would be the product of cuts and
            values.
    """
    aliases = aliases_of(forward)
    # Positions do not count inputs, and a canonical graph has fewer ops.
    kept = [0]
    for node in forward.nodes:
        if node.kind != "placeholder":
            kept.append(kept[-1] + (node.name not in aliases))
    positions = [kept[boundary.position] for boundary, _ in cuts]
    names: list[set[str]] = [set() for _ in positions]
    for name, first, end in crossed(plain, positions, {}):
        if first < end:
            # A value whose last use is after the last cut does not end at a cut.
            for number in (first, end) if only_changes else range(first, end):
                if number < len(names):
                    names[number].add(name)
    inserted: dict[int, list[Node]] = {}
    for (_, node), position, of_cut in zip(cuts, positions, names, strict=True):
        args = (tuple(Ref(name) for name in sorted(of_cut)),)
        name = node.name
        while name in plain.by_name:  # a name must be unique in its graph
            name += "'"
        inserted.setdefault(position, []).append(replace(node, name=name, args=args))
    nodes = list(plain.inputs)
    for position, node in enumerate(n for n in plain.nodes if n.kind != "placeholder"):
        nodes += inserted.get(position, ())
        nodes.append(node)
    return replace(plain, nodes=tuple(nodes))
