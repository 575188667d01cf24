"""The form of a finding: all that it changed, as a digest and as lines.

Findings of several files that are merged into one cause may still differ. They have one form if
their digests are equal. A digest covers each node whole, however little of it is printed: op,
arguments, effects, result, and the bodies of higher-order ops. Only what depends on the code around
a change is left out:

- names: a node of the change is its number, an operand that the old and the new node share is its
  position, and any other value has its old name, relative to the layer;
- sizes of results that the change did not bring: in a changed node, those that it keeps, and in an
  added or removed node, those of its operands.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..higher_order import body_names
from ..model import Graph, Node
from ..text import format_name, format_node, format_result
from .findings import SIGNS, Change, Finding, digest, nodes_of_changes, ops_of
from .paths import instances_of, path_of, relative_to_instances
from .words import outside_modules, shown_nodes

_NAME = re.compile(r'([%@]("(?:[^"\\]|\\.)*"|[^\s,()[\]]+))|"(?:[^"\\]|\\.)*"')
"""A name in a printed node, or a string, which has no name."""
_SIZE = re.compile(r"(?<=[\[ ])[^\s\[\],]+(?=[\],])")
"""A size in a printed result."""


def form_of(finding: Finding) -> dict[str, Any]:
    """Return the form of a finding with places.

    Returns:
        `form`, the digest, and `before`, `after` and `with`, as in `Finding.to_json`, but whole.
    """
    places: dict[str, Sequence[Change]] = {}  # the changes of one place of each digest
    digests = [_digest(place.changes) for place in finding.places]
    for form, place in zip(digests, finding.places, strict=True):
        places.setdefault(form, place.changes)
    # Added modules differ among themselves; other places are the same edit.
    digests = digests if finding.modules else sorted(places)
    every = [change for changes in places.values() for change in changes]
    primary = () if finding.summary else finding.changes
    before, after, _ = shown_nodes(
        outside_modules(every, finding.modules) if finding.modules else primary
    )
    graphs = {id(graph): (sign, graph) for c in every for sign, graph in _graphs(c, finding)}
    # Below the first empty line, the text of a graph has its nodes.
    bodies = [
        f"{sign} {line.strip()}"
        for sign, graph in graphs.values()
        for line in graph.to_text(fold=False).partition("\n\n")[2].splitlines()
    ]
    rest = []
    for change in every:
        texts = dict.fromkeys(map(format_node, nodes_of_changes([change])))
        # The texts of a return are equal if its graph only saves other values.
        is_shown = len(texts) == 2 or None in (change.before, change.after)
        if is_shown and change.node not in (before, after):
            rest.append(f"{SIGNS[change.kind]} {' -> '.join(texts)}")
    for change in every:
        rest += [f"> %{format_name(x)} is now %{format_name(y)}" for x, y in change.renamed]
    rest += [f"> {line}" for line in dict.fromkeys(_readers(every, bool(finding.modules)))]
    details = [f"~ {line}" for line in (*finding.details, *_followers(finding))]
    return {
        "form": digest(finding.summary, *digests, *bodies, *details, *finding.gradients),
        "before": format_node(before) if before else "",
        "after": format_node(after) if after else "",
        "with": details + rest + bodies,
    }


def _readers(changes: Sequence[Change], returned: bool) -> Iterator[str]:
    """Yield the nodes that read an added or removed node, and do not change otherwise.

    Args:
        changes: the changes.
        returned: True to also yield the output.
    """
    changed = {id(node) for node in nodes_of_changes(changes)}
    for change in changes:
        # Without `other`, the node was added or removed.
        for _, node, other, graph in _sides(change) if change.node.is_call else ():
            for name in graph.users.get(node.name, ()) if other is None else ():
                user = graph.by_name[name]
                is_reader = user.is_call or (returned and user.kind == "output")
                if is_reader and id(user) not in changed:
                    yield format_node(user)


def _followers(finding: Finding) -> Iterator[str]:
    """Yield what follows from a graph break, each op once: how many there are says nothing."""
    for place in finding.places if finding.graph_break else ():
        yield from sorted(
            {f"follows: {change.kind} {change.node.op}" for change in ops_of(place.consequences)}
        )


def _graphs(change: Change, finding: Finding) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs that a node added or removed, each with its sign.

    If an op has bodies in both graphs, these are compared by themselves. Bodies beyond the number
    that the other node has were added or removed.
    """
    for side, node, other, graph in _sides(change):
        names = [*body_names(node)][len([*body_names(other)]) :]
        if finding.of_graph and other is None:
            yield "-+"[side], graph
        if names:
            yield from (("-+"[side], sub) for sub in graph.subgraphs if sub.name in names)


def _sides(change: Change) -> Iterator[tuple[int, Node, Node | None, Graph]]:
    """Yield each node of a change: its side, the node, the other node, and its graph.

    The side is 0 for the old graph and 1 for the new graph. The other node is `None` if the node
    was added or removed. Nothing is yielded if the graphs are unknown.
    """
    nodes = change.before, change.after
    for side, graph in enumerate(change.within):
        if (node := nodes[side]) is not None:
            yield side, node, nodes[not side], graph


def _digest(changes: Sequence[Change]) -> str:
    """Return a digest of the changes in one place.

    Names are replaced as the module docstring says. In these maps, a name includes its `%`.
    """
    layers = [layer for c in changes[:1] for layer in instances_of(path_of(c.node))]
    sides = [(change, *side) for change in changes for side in _sides(change)]
    # The numbers of the nodes of the change, by side and name.
    own = {(side[1], f"%{format_name(side[2].name)}"): f"#{k}" for k, side in enumerate(sides)}

    def text(change: Change, side: int, node: Node, other: Node | None, graph: Graph) -> str:
        """Return a node of a change as text, with its names and sizes replaced."""
        names = [[f"%{format_name(name)}" for name in pair] for pair in change.renamed]
        # The old name of a renamed value belongs to another value now, so it must match nothing.
        old_names = {old: "" for old, _ in names} | {new: old for old, new in names}

        def before(side: int, name: str) -> str:
            """Return the old name of a value, "" if it is unknown."""
            return old_names.get(name, name) if side else name

        # Operands that the other node has, too: their positions in its text.
        found = _NAME.finditer(format_node(other)) if other else ()
        shared = {before(not side, match[1]): f"={k}" for k, match in enumerate(found) if match[1]}

        def renamed(match: re.Match[str]) -> str:
            # Group 1 is a name with its sign, group 2 without it. A string has neither.
            name = before(side, match[1] or match[0])
            relative = match[2] and relative_to_instances(name[1:], layers)
            return own.get((side, match[1])) or shared.get(name, str(relative or name))

        call = _NAME.sub(renamed, format_node(replace(node, name="", result=None)))
        return f"{call} : {_result_text(node, other, graph)}"

    kinds = (change.kind for change in changes)
    return digest(*kinds, *(text(*side) for side in sides))


def added_results(finding: Finding) -> Hashable:
    """Return the results of the added and removed ops of the first place; see the module."""
    return tuple(
        _result_text(node, None, graph)
        for change in finding.changes
        for _, node, other, graph in _sides(change)
        if other is None and node.is_call
    )


def _result_text(node: Node, other: Node | None, graph: Graph) -> str:
    """Return a result with the number of each size that the change did not bring.

    Such a size also occurs in the result of `other`, or of an operand if `other` is `None`.
    """
    like = [graph.by_name[ref] for ref in node.refs] if other is None else [other]
    known = [size for value in like for size in _SIZE.findall(format_result(value.result))]
    sizes = {size: f"#{k}" for k, size in enumerate(known)}
    return _SIZE.sub(lambda match: sizes.get(match[0], match[0]), format_result(node.result))
