"""Comparison of the graphs of one program with the stored ones, at a level of detail."""

from __future__ import annotations

from dataclasses import replace
from difflib import unified_diff
from typing import get_args

from ..graph import Graph
from ..graph.equality.canonical import canonical
from ..graph.model import Detail
from ..graph.text.format import EAGER_KINDS, EAGER_VERSION, format_document, format_op, ran
from ..graph.text.parse import Document
from ..words import counted, listed
from .strict import strict
from .subject import Subject

DETAILS: tuple[Detail, ...] = get_args(Detail)
"""The levels of detail, from the coarsest to the finest."""

WITHOUT_EAGER = (
    "stored without eager graphs: by a release that did not record them, or when nothing ran "
    "eagerly"
)
"""The problem of a file of version 1, where the capture has eager graphs."""


def too_little(stored: Detail, detail: Detail) -> tuple[str, tuple[str, ...]] | None:
    """`problem` and `details` where a file has less detail than is compared; else None."""
    if DETAILS.index(stored) >= DETAILS.index(detail):
        return None
    return (
        f"the stored file has detail {stored!r}, which is too little to compare at {detail!r}",
        (f"compare with graph_snapshot(detail={stored!r}), or store it again",),
    )


def compare_programs(
    document: Document, subject: Subject, detail: Detail
) -> tuple[str, tuple[str, ...]] | None:
    """Compare a subject with a stored document.

    Args:
        document: the stored one, which may have more detail than is compared.
        subject: what the test captured.
        detail: "ops", "dataflow" or "full", see `graph_snapshot`.

    Returns:
        None for a match, else `problem` and `details` of the `Mismatch`.
    """
    if problem := too_little(document.header.detail, detail):
        return problem
    if document.version < EAGER_VERSION and any(graph.eager for graph in subject.graphs):
        return _compare_without_eager(document, subject, detail)
    return _compare(document, subject, detail)


def _compare(
    document: Document, subject: Subject, detail: Detail
) -> tuple[str, tuple[str, ...]] | None:
    if detail == "ops":
        return _compare_counts(document, subject)
    before, after = canonical(document.graphs), subject.graphs
    if _titles(before) != _titles(after):
        return (
            "the captured graphs are not those that are stored",
            (f"stored:  {_listing(before)}", f"now:     {_listing(after)}"),
        )
    if any(old != new for old, new in zip(before, after, strict=True)):
        return "", ()
    if detail == "full" and any(
        strict(old) != strict(new) for old, new in zip(before, after, strict=True)
    ):
        return "strides or devices differ, the dataflow is the same", _full_lines(before, after)
    return _compare_runs(document, subject)


def _compare_without_eager(
    document: Document, subject: Subject, detail: Detail
) -> tuple[str, tuple[str, ...]] | None:
    """Compare a subject that has eager graphs with a file of version 1, which has none.

    Where the compiled graphs differ as well, they are what has changed.
    """
    parts = [f"{graph.name} ({_ops(graph)})" for graph in subject.graphs if graph.eager]
    now = f"now:     {listed(parts, 6)}"
    compiled = tuple(graph for graph in subject.graphs if not graph.eager)
    if _compare(document, replace(subject, graphs=compiled), detail) is None:
        return WITHOUT_EAGER, (now,)
    found = _compare(document, subject, detail)
    assert found is not None
    return found[0], (*found[1], WITHOUT_EAGER)


def _ops(graph: Graph) -> str:
    return counted(graph.op_counts.total(), "op")


def _compare_runs(document: Document, subject: Subject) -> tuple[str, tuple[str, ...]] | None:
    """Compare how often the graphs ran; all else is equal, their names too."""
    differ = [
        graph
        for graph in subject.graphs
        if graph.name in subject.runs and document.runs.get(graph.name, graph.runs) != graph.runs
    ]
    lines = [
        f"{graph.name} {ran(graph.runs)}, stored: {document.runs[graph.name]}" for graph in differ
    ]
    if len(lines) < 2:
        return (lines[0], ()) if lines else None
    noun = "eager graphs" if all(graph.eager for graph in differ) else "graphs"
    return f"{len(lines)} {noun} ran another number of times", tuple(lines)


def _titles(graphs: tuple[Graph, ...]) -> list[tuple[str, str, bool]]:
    return [(graph.name, graph.kind, graph.eager) for graph in graphs]


def _listing(graphs: tuple[Graph, ...]) -> str:
    return ", ".join(
        name if name == kind or (eager and kind == EAGER_KINDS[0]) else f"{name} ({kind})"
        for name, kind, eager in _titles(graphs)
    )


def _compare_counts(document: Document, subject: Subject) -> tuple[str, tuple[str, ...]] | None:
    before = document.counts or _counts(canonical(document.graphs))
    after = subject.counts
    names, new_names = [name for name, _ in before], [name for name, _ in after]
    if names != new_names:
        return (
            "the captured graphs are not those that are stored",
            (f"stored:  {', '.join(names)}", f"now:     {', '.join(new_names)}"),
        )
    lines = [
        f"{name}: {format_op(op)}  {old.get(op, 0)} -> {new.get(op, 0)}"
        for (name, old), (_, new) in zip(before, after, strict=True)
        for op in sorted({*old, *new})
        if old.get(op, 0) != new.get(op, 0)
    ]
    noun = "op count differs" if len(lines) == 1 else "op counts differ"
    return (f"{len(lines)} {noun}", tuple(lines)) if lines else _compare_runs(document, subject)


def _counts(graphs: tuple[Graph, ...]) -> tuple[tuple[str, dict[str, int]], ...]:
    return tuple((graph.name, dict(graph.op_counts)) for graph in graphs)


def _full_lines(before: tuple[Graph, ...], after: tuple[Graph, ...]) -> tuple[str, ...]:
    """The lines that differ in the texts with strides and devices, each with `-` or `+`."""
    texts = (format_document(g, detail="full", fold=False) for g in (before, after))
    old, new = (text.splitlines() for text in texts)
    lines = [line.rstrip() for line in unified_diff(old, new, n=0, lineterm="")]
    return tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))
