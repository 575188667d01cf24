"""Export of two files to model-explorer: their graphs and the mapping of matching nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...graph.diff import GraphDiff, Matched, diff_graphs, heading
from ...graph.model import Graph, Node
from ..look import CHANGE_PAINTS, Paint
from .collection import (
    GROUP,
    NEW,
    OLD,
    ComparedNode,
    ExplorerSide,
    Json,
    Pane,
    enclosing,
    first_panes,
    graph_collection,
    namespace,
)


@dataclass(frozen=True)
class ExportedComparison:
    """Model-explorer's input for a comparison of two files.

    Attributes:
        collections: graphs of the old and of the new file. Matching nodes have the same id.
        mapping: ids of matching nodes and layers, for "sync navigation".
        panes: initial panes, the old and the new graph; () if no two graphs match.
    """

    collections: tuple[Json, Json]
    mapping: Json
    panes: tuple[Pane, ...]


def compare(
    before: Sequence[Graph], after: Sequence[Graph], labels: tuple[str, str]
) -> ExportedComparison:
    """Return the export of two files, with their graphs in the canonical form.

    Args:
        before, after: graphs of the two files.
        labels: names of the two collections.
    """
    diff = diff_graphs(before, after)
    origins = diff.origins
    assert origins is not None
    matched = [*origins.matched()]
    marked = _marked(diff)
    ids = _node_ids(matched)
    old, new = (
        ExplorerSide(
            lambda node: _paint(marked.get(id(node))),
            prefix=prefix,
            ids=ids,
            marked=marked,
            is_old=prefix == OLD,
        )
        for prefix in (OLD, NEW)
    )
    graph_facts = {"difference": heading(diff.findings)}
    olds = [old_graph for old_graph, _ in origins.pairs if old_graph is not None]
    news = [new_graph for _, new_graph in origins.pairs if new_graph is not None]
    return ExportedComparison(
        (
            graph_collection(_in_order(olds, before), labels[0], old, graph_facts),
            graph_collection(_in_order(news, after), labels[1], new, graph_facts),
        ),
        _mapping(matched, ids),
        first_panes(diff, origins.pairs, ids),
    )


def _in_order(graphs: Sequence[Graph], order: Sequence[Graph]) -> list[Graph]:
    """Sort graphs by the position of the graph with the same name in `order`."""
    position = {graph.name: number for number, graph in enumerate(order)}
    return sorted(graphs, key=lambda graph: position.get(graph.name, len(position)))


def _paint(mark: ComparedNode | None) -> Paint | None:
    return CHANGE_PAINTS[mark.kind] if mark is not None and mark.kind else None


def _marked(diff: GraphDiff) -> dict[int, ComparedNode]:
    """Return the differing nodes, keyed by `id(node)`."""
    marked: dict[int, ComparedNode] = {}

    def mark(kind: str, before: Node | None, after: Node | None, finding: str = "") -> None:
        if before is not None:
            marked.setdefault(id(before), ComparedNode(kind, after, finding))
        if after is not None:
            marked.setdefault(id(after), ComparedNode(kind, before, finding))

    for finding in diff.findings:
        text = heading((finding,))
        for place in finding.places:
            for change in () if finding.of_graph else place.changes:
                mark(change.kind, change.before, change.after, text)
            for change in place.consequences:
                mark(change.kind, change.before, change.after, f"follows from {text}")
    for pair in diff.graphs:
        if pair.before is None or pair.after is None:
            graph = pair.before or pair.after
            kind = "removed" if pair.after is None else "added"
            for body in graph.walk() if graph is not None else ():
                for node in body.nodes:
                    marked.setdefault(id(node), ComparedNode(kind))
            continue
        for kind, old, new in pair.changes():
            mark(kind, old, new)
    return marked


def _node_ids(matched: Sequence[Matched]) -> dict[int, dict[str, str]]:
    """Return node ids by node name, keyed by `id(graph)`.

    A new node with a matching old node has the old node's name as its id. Any other node has its
    own name, with " (new)" appended if an old node has this name.
    """
    ids: dict[int, dict[str, str]] = {}
    for before, after, partners in matched:
        old_ids = {} if before is None else {node.name: node.name for node in before.nodes}
        if before is not None:
            ids[id(before)] = old_ids
        if after is None:
            continue
        partner = {new: name for name, new in partners.items()}
        used_ids = {*old_ids, *(node.name for node in after.nodes)}
        new_ids = ids[id(after)] = {}
        for node in after.nodes:
            name = partner.get(node.name, node.name)
            if node.name not in partner and name in old_ids:
                while name in used_ids:
                    name += " (new)"
                used_ids.add(name)
            new_ids[node.name] = name
    return ids


def _mapping(matched: Sequence[Matched], ids: Mapping[int, Mapping[str, str]]) -> Json:
    nodes: dict[str, str] = {}
    votes: Counter[tuple[str, str]] = Counter()
    for before, after, partners in matched:
        if before is None or after is None:
            continue
        olds, news = before.by_name, after.by_name
        for name, partner in partners.items():
            nodes[ids[id(before)][name]] = ids[id(after)][partner]
            paths = enclosing(namespace(olds[name])), enclosing(namespace(news[partner]))
            votes.update(zip(*paths, strict=False))
    return {
        "type": "sync_navigation",
        "mapping": {**nodes, **_groups(votes)},
        "disableMappingFallback": True,
        "showDiffHighlights": True,
        "deletedNodesBorderColor": CHANGE_PAINTS["removed"].border,
        "newNodesBorderColor": CHANGE_PAINTS["added"].border,
    }


def _groups(votes: Counter[tuple[str, str]]) -> dict[str, str]:
    """Match layers one to one, beginning with the pair that shares the most matching nodes."""
    groups: dict[str, str] = {}
    matched_new: set[str] = set()
    best = sorted(votes.items(), key=lambda item: (-item[1], item[0][0] != item[0][1], item[0]))
    for (old, new), _ in best:
        if f"{old}{GROUP}" not in groups and new not in matched_new:
            matched_new.add(new)
            groups[f"{old}{GROUP}"] = f"{new}{GROUP}"
    return groups
