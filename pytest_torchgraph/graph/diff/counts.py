"""The difference of documents of which one holds op counts alone."""

from __future__ import annotations

from ..text.format import ran
from ..text.parse import Document


def differing_counts(old: Document, new: Document) -> list[str]:
    """A line for each graph that ran more or less often, and for each count that differs.

    Args:
        old, new: the documents; of one with graphs their ops are counted.
    """
    lines = [
        f"{graph} {ran(new.runs[graph])}, before: {old.runs[graph]}"
        for graph in sorted(old.runs.keys() & new.runs.keys())
        if old.runs[graph] != new.runs[graph]
    ]
    before, after = _counts_by_op(old), _counts_by_op(new)
    lines += [
        f"{graph}: {op}  {before.get((graph, op), 0)} -> {after.get((graph, op), 0)}"
        for graph, op in sorted({*before, *after})
        if before.get((graph, op)) != after.get((graph, op))
    ]
    return lines


def _counts_by_op(document: Document) -> dict[tuple[str, str], int]:
    """How often each op occurs, by the graph's name and the op."""
    of_graphs = document.counts or [(graph.name, graph.op_counts) for graph in document.graphs]
    return {(graph, op): count for graph, counts in of_graphs for op, count in counts.items()}
