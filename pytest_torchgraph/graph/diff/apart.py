"""Set apart the nodes of modules that only one of two graphs has, and find exchanged ops.

If a list of layers grows by one, the nodes of the new layer look like the nodes of every other
layer. They would take the partners of the nodes after the list, so they get no partner at all.
A module whose ops may be those of a removed module is not set apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from ..equality import NumberedGraph
from .correspondence import REACH, Correspondence
from .moves import OWN_VALUES
from .paths import instances_of, path_of

MIN_MOVED_SHARE = 0.5
"""Minimum share of a module's ops among removed modules for the module to count as moved."""


def find_one_sided_modules(a: NumberedGraph, b: NumberedGraph) -> tuple[set[int], set[int]]:
    """Return, for each graph, the numbers of the nodes in modules that only this graph has."""
    paths = [[path_of(node) for node in flat.nodes] for flat in (a, b)]
    instances = [
        {i: None for path in dict.fromkeys(side) for i in instances_of(path)} for side in paths
    ]
    shared = instances[0].keys() & instances[1].keys()
    # Both graphs have the same instances.
    if len(shared) == len(instances[0]) == len(instances[1]):
        return set(), set()
    shared_lists = {_list_of(instance) for instance in shared}
    numbers: list[set[int]] = []
    for side, flat in enumerate((a, b)):
        # Modules are set apart with all inside them, unless their whole list is one-sided.
        modules: dict[str, set[int]] = {}
        for i, path in enumerate(paths[side]):
            one_sided = [instance for instance in instances_of(path) if instance not in shared]
            # The last one-sided instance is the outermost one.
            if one_sided and _list_of(one_sided[-1]) in shared_lists:
                modules.setdefault(one_sided[-1], set()).add(i)
        # The ops of modules that this graph lacks: most ops of a moved module are among them.
        other, paths_here = (b, a)[side], {*paths[side]}
        gone = Counter(
            other.labels[i]
            for i, path in enumerate(paths[1 - side])
            if path not in paths_here and other.nodes[i].is_call
        )
        apart: set[int] = set()
        for nodes in modules.values():
            labels = Counter(flat.labels[i] for i in nodes if flat.nodes[i].is_call)
            if (labels & gone).total() <= MIN_MOVED_SHARE * labels.total():
                apart |= nodes
        numbers.append(apart)
    return numbers[0], numbers[1]


def _list_of(instance: str) -> str:
    """Return the path of the list that an instance is in."""
    return instance.rpartition(".")[0]


def find_exchanged(matching: Correspondence) -> Iterator[tuple[int, int]]:
    """Yield pairs of unmatched nodes, old and new, where one op was exchanged for the other.

    Both nodes have the same operands, equal results and the same module. Exactly one of the two has
    a neighbouring module that exists only in its own graph. That module also reads values from
    elsewhere, but no operand of the exchanged op. This excludes an op that was decomposed into
    several ops: those would read its operands.
    """
    paths = [{node.module for node in flat.nodes} for flat in (matching.a, matching.b)]
    paired: set[int] = set()
    for i, node in enumerate(matching.a.nodes):
        if not node.is_call or not matching.is_open(0, i):
            continue
        for j in _find_candidates(matching, i):
            around_old = _one_sided_neighbours(matching, 0, i, paths[1])
            around_new = _one_sided_neighbours(matching, 1, j, paths[0])
            # `None` means one edit with a neighbour, so the ops were not exchanged.
            separate = around_old is not None and around_new is not None
            if separate and bool(around_old) != bool(around_new) and j not in paired:
                paired.add(j)
                yield i, j
                break


def _find_candidates(m: Correspondence, i: int) -> Iterator[int]:
    """Yield unmatched new nodes with the operands, module and result of an old node."""
    node, operands = m.a.nodes[i], m.a.operands[i]
    partners = [m.forward[p] for p in operands]
    flow = [p for p in operands if m.a.nodes[p].op not in OWN_VALUES]
    # An op has no counterpart if all its operands are parameters, or if one has no partner.
    if not flow or -1 in partners:
        return
    for j, _ in m.b.users[m.forward[flow[0]]]:
        other = m.b.nodes[j]
        if (
            other.is_call
            and m.is_open(1, j)
            and m.b.operands[j] == partners
            and other.module == node.module
            and other.result == node.result
        ):
            yield j


def _one_sided_neighbours(
    m: Correspondence, side: int, start: int, paths: Set[str]
) -> set[str] | None:
    """Return the modules near a node that only the node's graph has.

    Near means connected to the node through unmatched nodes.

    Args:
        m: the correspondence of the nodes.
        side, start: the node, in the old graph (0) or the new graph (1).
        paths: the modules of the other graph.

    Returns:
        `None` if a near node takes an operand of `start`: they belong to one edit. Empty if the
        near nodes take only the result of `start`: one op was written out as a chain of ops.
    """
    flat, partner = m.flats[side], m.partners[side]
    operands = {p for p in flat.operands[start] if flat.nodes[p].op not in OWN_VALUES}
    modules: set[str] = set()
    takes_more = False  # True if a near node also takes a value from elsewhere
    visited, todo = {start}, [user for user, _ in flat.users[start]]
    while todo and len(visited) <= REACH:
        i = todo.pop()
        if i in visited or partner[i] != -1 or not flat.nodes[i].is_call:
            continue
        visited.add(i)
        if not operands.isdisjoint(flat.operands[i]):
            return None
        if flat.nodes[i].module not in paths:
            modules.add(flat.nodes[i].module)
        takes_more = takes_more or any(
            partner[p] != -1 or not flat.nodes[p].is_call for p in flat.operands[i]
        )
        todo.extend(flat.operands[i])
        todo.extend(user for user, _ in flat.users[i])
    return modules if takes_more else set()
