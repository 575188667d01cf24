"""Comparison of captured graphs with stored ones.

    subject_of    the graphs of a capture, a graph or an fx graph
    same_text     the quick test: equal texts
    compare       the graphs, at a level of detail
    Mismatch      a comparison that failed, for the report

It knows graphs and texts, and nothing of pytest or syrupy.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from difflib import unified_diff
from functools import cached_property
from typing import get_args

from ..errors import GraphFormatError
from ..graph import Graph, GraphDiff
from ..graph.equality.canonical import canonical
from ..graph.model import Detail
from ..graph.text.format import (
    EAGER_KINDS,
    EAGER_VERSION,
    Header,
    format_document,
    format_op,
    ran,
)
from ..graph.text.parse import Document, parse_document
from .strict import strict

DETAILS: tuple[Detail, ...] = get_args(Detail)
"""The levels of detail, from the coarsest to the finest."""

WITHOUT_EAGER = (
    "stored without eager graphs: by a release that did not record them, or when nothing ran "
    "eagerly"
)
"""The problem of a file of version 1, where the capture has eager graphs."""
MOST_EAGER = 6
"""How many eager graphs are named where a file has none of them; the others are counted."""

_HEADER = re.compile(
    r"(?P<version>torchgraph \d+)\n"
    r"(?:(?=\w)(?:via [^\s,]+)?(?:(?:^|, )torch [^\s,]+)?(?:(?:^|, )detail (?P<detail>\w+))?\n)?\n",
    re.MULTILINE,
)
"""The header of a document: its version, its origin (via, torch release), and its detail."""


@dataclass(frozen=True)
class Subject:
    """The left side of a comparison: what the test captured.

    Attributes:
        graphs: the graphs in canonical form.
        header: how they were captured, and the torch release.
    """

    graphs: tuple[Graph, ...]
    header: Header

    def to_text(self, detail: Detail, fold: bool = True) -> str:
        """The document that would be stored; with `fold=False`, with one line a node."""
        return format_document(self.graphs, self.header, detail, fold=fold)


def subject_of(value: object) -> Subject:
    """The graphs of a value that is compared with `graph_snapshot`.

    Args:
        value: a capture; a `Graph`; a `GraphModule`, `fx.Graph` or `ExportedProgram` of torch.

    Raises:
        TypeError: for anything else, saying what to pass.
        AssertionError: for a capture without a graph, or one of a watch in which code that was to
            be compiled ran eagerly.
    """
    __tracebackhide__ = True
    if isinstance(value, Graph):
        return Subject(canonical((value,)), Header(torch=_running_torch()))
    if _is_fx(value):
        from ..api.existing import from_fx

        return Subject(canonical((from_fx(value),)), Header(torch=_running_torch()))
    graphs = None if isinstance(value, type) else _program(value)
    if not isinstance(graphs, tuple) or not all(isinstance(graph, Graph) for graph in graphs):
        raise TypeError(
            f"graph_snapshot cannot compare {_article(type(value))}: pass a capture, as in "
            "`graph_capture(model, *inputs) == graph_snapshot`, one of its graphs, a "
            "torch.fx.GraphModule, a torch.fx.Graph or a torch.export.ExportedProgram"
        )
    if getattr(value, "watched", None) is not None:
        from ..checks.compilation import need_graphs

        need_graphs(value)  # type: ignore[arg-type]
    if not graphs:
        raise AssertionError(
            "the capture holds no graph, so that there is nothing to compare: nothing was compiled "
            "while it watched"
        )
    return Subject(
        canonical(graphs), getattr(value, "header", None) or Header(torch=_running_torch())
    )


def _program(value: object) -> object:
    """The graphs of a capture, with those that ran eagerly; None for what has no graphs."""
    return getattr(value, "program", None) or getattr(value, "graphs", None)


def _is_fx(value: object) -> bool:
    """Whether a value is a `GraphModule`, `Graph` or `ExportedProgram` of torch."""
    return any(
        kind.__module__.startswith("torch.")
        and kind.__name__ in ("GraphModule", "Graph", "ExportedProgram")
        for kind in type(value).__mro__
    )


def _article(kind: type) -> str:
    """The full name of a class, with "a" or "an" before it."""
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _running_torch() -> str:
    """The release of the torch that is imported, as "2.13.0"; "" where none is."""
    release = str(getattr(sys.modules.get("torch"), "__version__", ""))
    return release.partition("+")[0]


@dataclass(frozen=True)
class Mismatch:
    """A comparison that failed.

    Attributes:
        name: the name of the stored file, without suffix.
        path: the path of the stored file, as messages show it.
        subject: what the test captured.
        problem: what is wrong, in one line; "" where the difference of the graphs says it.
        details: further lines about the problem.
        stored: the document in the file; None where there is no file, or none that can be read.
        is_new: whether there is no file yet.
        origin: why the file of another release of torch was compared; "" where it was not.
        writes: the file that an update writes, as messages show it; "" where that is `path`.
        refused: why an update writes nothing; "" where it does.
    """

    name: str
    path: str
    subject: Subject
    problem: str = ""
    details: tuple[str, ...] = ()
    stored: Document | None = None
    is_new: bool = False
    origin: str = ""
    writes: str = ""
    refused: str = ""

    @property
    def releases(self) -> tuple[str, str] | None:
        """The torch release of the stored graphs and the running one, where they differ."""
        old = self.stored.header.torch if self.stored else ""
        new = self.subject.header.torch
        return (old, new) if old and new and old != new else None

    @property
    def text_diff(self) -> list[str]:
        """The difference of the texts with one line a node; empty where no graph is stored."""
        if self.stored is None or not self.stored.graphs:
            return []
        detail = self.stored.header.detail
        stored = format_document(self.stored.graphs, self.stored.header, detail, fold=False)
        old, new = stored.splitlines(), self.subject.to_text(detail, fold=False).splitlines()
        return list(unified_diff(old, new, "stored", "now", lineterm=""))

    @cached_property
    def diff(self) -> GraphDiff | None:
        """The difference of the graphs; None where only counts are stored, or nothing is."""
        if self.stored is None or not self.stored.graphs:
            return None
        from ..graph.diff.report import diff_graphs

        return diff_graphs(self.stored.graphs, self.subject.graphs)


def same_text(stored: str, text: str) -> bool:
    """Whether two documents have the same text, their origin (via, torch release) aside.

    Equal texts are equal graphs. Different ones may be as well: then `compare` decides.
    """
    old, new = _HEADER.match(stored), _HEADER.match(text)
    return (
        old is not None
        and new is not None
        and old.groups() == new.groups()
        and stored[old.end() :] == text[new.end() :]
    )


def read_stored(stored: str) -> Document:
    """The document of a stored text.

    Raises:
        GraphFormatError: if it is malformed, with the position.
    """
    _check_encoding(stored)
    return parse_document(stored)


def parse_stored(stored: str, path: str) -> Document:
    """`read_stored`, with an error for the user.

    Raises:
        GraphFormatError: if it is malformed, with the path, the position and what to do about it.
    """
    __tracebackhide__ = True
    try:
        return read_stored(stored)
    except GraphFormatError as error:
        advice = (
            "restore the file from version control, or store the graph again with "
            "--torchgraph-update"
        )
        problem = (
            error.problem
            if "--torchgraph-update" in error.problem
            else (f"{error.problem}: {advice}")
        )
        raise GraphFormatError(problem, error.line, error.column, path) from None


def _check_encoding(stored: str) -> None:
    """Refuse bytes that are not UTF-8, which `files.read_text` gives as surrogates."""
    try:
        stored.encode()
    except UnicodeEncodeError as error:
        before = stored[: error.start]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise GraphFormatError("a byte that is not UTF-8", line, column) from None


def same_flat_text(stored: str, subject: Subject, detail: Detail) -> bool:
    """`same_text` with one line a node: files that were written so are not rewritten for that.

    Reading such a file and comparing its graphs takes many times as long.
    """
    return same_text(stored, format_document(subject.graphs, subject.header, detail, fold=False))


def is_stored(stored: str, subject: Subject, detail: Detail) -> bool:
    """Whether a stored text holds a subject's graphs with this very detail; not if malformed."""
    if same_text(stored, subject.to_text(detail)) or same_flat_text(stored, subject, detail):
        return True
    try:
        document = read_stored(stored)
    except GraphFormatError:
        return False
    return document.header.detail == detail and compare(document, subject, detail) is None


def compare(
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
    stored = document.header.detail
    if DETAILS.index(stored) < DETAILS.index(detail):
        return (
            f"the stored file has detail {stored!r}, which is too little to compare at {detail!r}",
            (f"compare with graph_snapshot(detail={stored!r}), or store it again",),
        )
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
    more = f" and {len(parts) - MOST_EAGER} more" if len(parts) > MOST_EAGER else ""
    now = f"now:     {', '.join(parts[:MOST_EAGER])}{more}"
    compiled = tuple(graph for graph in subject.graphs if not graph.eager)
    if _compare(document, replace(subject, graphs=compiled), detail) is None:
        return WITHOUT_EAGER, (now,)
    found = _compare(document, subject, detail)
    assert found is not None
    return found[0], (*found[1], WITHOUT_EAGER)


def _ops(graph: Graph) -> str:
    count = graph.op_counts.total()
    return "1 op" if count == 1 else f"{count} ops"


def _compare_runs(document: Document, subject: Subject) -> tuple[str, tuple[str, ...]] | None:
    """Compare how often the eager graphs ran; all else is equal, their names too."""
    lines = [
        f"{graph.name} {ran(graph.runs)}, stored: {document.runs[graph.name]}"
        for graph in subject.graphs
        if graph.eager and document.runs.get(graph.name, graph.runs) != graph.runs
    ]
    if len(lines) < 2:
        return (lines[0], ()) if lines else None
    return f"{len(lines)} eager graphs ran another number of times", tuple(lines)


def _titles(graphs: tuple[Graph, ...]) -> list[tuple[str, str, bool]]:
    return [(graph.name, graph.kind, graph.eager) for graph in graphs]


def _listing(graphs: tuple[Graph, ...]) -> str:
    return ", ".join(
        name if name == kind or (eager and kind == EAGER_KINDS[0]) else f"{name} ({kind})"
        for name, kind, eager in _titles(graphs)
    )


def _compare_counts(document: Document, subject: Subject) -> tuple[str, tuple[str, ...]] | None:
    before = document.counts or _counts(canonical(document.graphs))
    after = _counts(subject.graphs)
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
