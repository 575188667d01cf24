"""The form of a finding: all that it changed, as a digest and as lines.

Findings of several files that are merged into one cause may still differ. They have one form if
their digests are equal. A digest covers each node whole, however little of it is printed: op,
arguments, effects, result, and the bodies of higher-order ops. Only what depends on the code around
a change is left out:

- names: a node of the change is its number, a name that the old and the new node share is its
  position, and any other name is relative to the layer;
- sizes that the change did not bring: in a changed node, those that it keeps; in an added or
  removed node, those of its operands, and in a whole graph, those of its inputs.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..higher_order import body_names
from ..model import Graph, Node
from ..text import format_name, format_node, format_result
from .findings import SIGNS, Change, Finding, nodes_of_changes
from .identify import digest
from .paths import instances_of, path_of, relative_to_instances
from .words import outside_modules, shown_nodes

_NAME = re.compile(r'%?"(?:[^"\\]|\\.)*"|%[^\s,()[\]]+')
"""A name in a printed node. A string is matched as well, so that no name is found in it."""
_SIZE = re.compile(r"(?<=[\[ ])[^\s\[\],]+(?=[\],])")
"""A size in a printed result."""
Names = Mapping[str, str]


def form_of(finding: Finding) -> dict[str, Any]:
    """Return the form of a finding with places.

    Returns:
        `form`, the digest, and `before`, `after` and `with`, as in `Finding.to_json`, but whole.
    """
    places = {_place(place.changes): place for place in finding.places}
    changes = [change for place in places.values() for change in place.changes]
    primary: Sequence[Change] = () if finding.summary else finding.changes
    if finding.modules:
        primary = outside_modules(changes, finding.modules)
    before, after, _ = shown_nodes(primary)
    rest = [change for change in changes if change.node not in (before, after)]
    graphs = {id(graph): (sign, graph) for change in changes for sign, graph in _bodies(change)}
    if finding.of_graph and len(nodes_of_changes(changes)) == 1:  # the graph came or went
        graphs = {0: (SIGNS[changes[0].kind], changes[0].within[0])}
    parts = [(sign, part) for sign, graph in graphs.values() for part in graph.walk()]
    lines = [f"{sign} {format_node(node)}" for sign, part in parts for node in part.nodes]
    return {
        "form": digest(finding.summary, *sorted(places), *(_whole(part) for _, part in parts)),
        "before": format_node(before) if before else "",
        "after": format_node(after) if after else "",
        "with": [*dict.fromkeys([*map(_line, rest), *lines])],
    }


def _line(change: Change) -> str:
    """Return a change as a line, with its old node if it has two."""
    nodes = nodes_of_changes([change])
    return f"{change}, was {format_node(nodes[0])}" if len(nodes) > 1 else str(change)


def _bodies(change: Change) -> Iterator[tuple[str, Graph]]:
    """Yield the bodies that came or went with an op; bodies of both nodes are compared as graphs."""
    names = [[*body_names(node)] if node else [] for node in (change.before, change.after)]
    for own, other, sign, graph in zip(names, reversed(names), "-+", change.within, strict=False):
        yield from ((sign, sub) for sub in graph.subgraphs if sub.name in own[len(other) :])


def _whole(graph: Graph) -> str:
    names = {f"%{format_name(node.name)}": f"#{k}" for k, node in enumerate(graph.nodes)}
    sizes = _sizes(graph.inputs)
    return repr([_text(node, names, sizes) for node in graph.nodes])


def _place(changes: Sequence[Change]) -> str:
    layers = next(filter(None, (instances_of(path_of(c.node)) for c in changes)), ())
    single = [change for change in changes if len(nodes_of_changes([change])) == 1]
    own = {*map(id, nodes_of_changes(single))}
    operands = (
        c.within[c.before is None].by_name[ref] for c in single if c.within for ref in c.node.refs
    )
    given = _sizes(node for node in operands if id(node) not in own)
    texts = []
    numbers: tuple[dict[str, str], ...] = ({}, {})
    for k, change in enumerate(changes):
        for side, node in zip(numbers, (change.before, change.after), strict=True):
            if node is not None:
                side[f"%{format_name(node.name)}"] = f"#{k}"
    for change in changes:
        names: dict[str, str] = {}
        sizes = given
        if change.before is not None and change.after is not None:
            shared = {*_NAME.findall(format_node(change.after))}
            old = enumerate(_NAME.findall(format_node(change.before)))
            names = {name: f"={k}" for k, name in old if name in shared}
            kept = _sizes([change.after])
            sizes = {size: role for size, role in _sizes([change.before]).items() if size in kept}
        texts.append(change.kind)
        for side, node in zip(numbers, (change.before, change.after), strict=True):
            if node is not None:
                texts.append(_text(node, ChainMap(side, names), sizes, layers))
    return repr(texts)


def _text(node: Node, names: Names, sizes: Names, layers: Sequence[str] = ()) -> str:
    """Return a node as text without its own name, and with other names and sizes."""

    def name(match: re.Match[str]) -> str:
        relative = relative_to_instances(match[0].removeprefix("%"), layers)
        return names.get(match[0], match[0] if relative is None else f"%{relative}")

    target = str(relative_to_instances(node.target, layers) or node.target)
    call = _NAME.sub(name, format_node(replace(node, name="", target=target, result=None)))
    result = format_result(node.result)
    return f"{call} : {_SIZE.sub(lambda size: sizes.get(size[0], size[0]), result)}"


def _sizes(nodes: Iterable[Node]) -> dict[str, str]:
    """Return a name for each size of the results of these nodes, by its first occurrence."""
    sizes = (size for node in nodes for size in _SIZE.findall(format_result(node.result)))
    return {size: f"#{k}" for k, size in enumerate(dict.fromkeys(sizes))}
