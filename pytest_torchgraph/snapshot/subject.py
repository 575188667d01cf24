"""The left side of a comparison: the graphs that a test captured, of one program or of ranks.

subject_of      the graphs of a capture, of `Ranks`, of a graph or an fx graph
Subject         those of one program
RanksSubject    those of several ranks
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..api.many_ranks import ManyRanks, are_ranks
from ..graph import Graph
from ..graph.equality.canonical import canonical
from ..graph.model import Detail
from ..graph.text.format import Header, format_document
from ..graph.text.parse import Document
from ..graph.text.ranks import RanksDocument, format_sections
from .strict import strict


@dataclass(frozen=True)
class Subject:
    """The left side of a comparison: what the test captured.

    Attributes:
        graphs: the graphs in canonical form.
        header: how they were captured, and the torch release.
    """

    graphs: tuple[Graph, ...]
    header: Header

    @property
    def counts(self) -> tuple[tuple[str, dict[str, int]], ...]:
        """For each graph its name and how often each op occurs."""
        return tuple((graph.name, dict(graph.op_counts)) for graph in self.graphs)

    @property
    def runs(self) -> Mapping[str, int]:
        """How often each graph ran that is eager or counted, by its name."""
        return {g.name: g.runs for g in self.graphs if g.eager or g.counted}

    def to_text(self, detail: Detail, fold: bool = True) -> str:
        """The document that would be stored; with `fold=False`, with one line a node."""
        return format_document(self.graphs, self.header, detail, fold=fold)

    def key(self, detail: Detail) -> object:
        """Equal for subjects that are equal at a level of detail."""
        if detail == "ops":
            counts = [(name, frozenset(of_graph.items())) for name, of_graph in self.counts]
            return tuple(counts), tuple(self.runs.values())
        graphs = self.graphs if detail == "dataflow" else tuple(map(strict, self.graphs))
        parts = tuple((g.name, g.kind, g.level, g.eager, g) for g in graphs)
        return parts, tuple(self.runs.values())


@dataclass(frozen=True)
class ReadSubject(Subject):
    """The same, read from a text: with `detail ops` it has counts and no graphs.

    Attributes:
        document: the parsed text.
    """

    document: Document

    @property
    def counts(self) -> tuple[tuple[str, dict[str, int]], ...]:
        """As of `Subject`."""
        return self.document.counts or super().counts

    @property
    def runs(self) -> Mapping[str, int]:
        """As of `Subject`."""
        return self.document.runs


@dataclass(frozen=True)
class RanksSubject:
    """The graphs of several ranks.

    Attributes:
        mesh: the sizes of the mesh by the names of its dimensions, in order.
        of_rank: what each rank captured, in the order of their numbers; at least one.
    """

    mesh: Mapping[str, int]
    of_rank: Mapping[int, Subject]

    @property
    def header(self) -> Header:
        """How they were captured: all in the same way."""
        return next(iter(self.of_rank.values())).header

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs of all ranks, one after the other."""
        return tuple(graph for subject in self.of_rank.values() for graph in subject.graphs)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of the ranks, ascending."""
        return tuple(self.of_rank)

    @cached_property
    def _classes(self) -> dict[Detail, list[tuple[list[int], Subject]]]:
        return {}

    def classes(self, detail: Detail) -> Sequence[tuple[Sequence[int], Subject]]:
        """The ranks that have equal graphs at a level of detail, and the graphs of the first."""
        if detail not in self._classes:
            found: dict[object, tuple[list[int], Subject]] = {}
            for rank, subject in self.of_rank.items():
                found.setdefault(subject.key(detail), ([], subject))[0].append(rank)
            self._classes[detail] = [*found.values()]
        return self._classes[detail]

    def to_text(self, detail: Detail, fold: bool = True) -> str:
        """The document that would be stored; with `fold=False`, with one line a node."""
        sections = [(ranks, subject.graphs) for ranks, subject in self.classes(detail)]
        return format_sections(self.mesh, sections, self.header, detail, fold=fold)


def read_subject(document: Document | RanksDocument) -> Subject | RanksSubject:
    """The left side of a comparison that was made elsewhere, of the text that it gave."""
    if isinstance(document, Document):
        return ReadSubject(canonical(document.graphs), document.header, document)
    of_rank = {rank: read_subject(each) for rank, each in sorted(document.of_rank.items())}
    return RanksSubject(dict(document.mesh), of_rank)  # type: ignore[arg-type]


def subject_of(value: object) -> Subject | RanksSubject:
    """The graphs of a value that is compared with `graph_snapshot`.

    Args:
        value: a capture; `Ranks`; a `Graph`; a `GraphModule`, `fx.Graph` or `ExportedProgram` of
            torch.

    Raises:
        TypeError: for anything else, saying what to pass.
        AssertionError: for a capture without a graph, or one of a watch in which code that was to
            be compiled ran eagerly; for `Ranks` without a capture.
    """
    __tracebackhide__ = True
    if are_ranks(value):
        return _subject_of_ranks(value)
    return _subject_of_program(value)


def _subject_of_ranks(value: ManyRanks) -> RanksSubject:
    __tracebackhide__ = True
    if not len(value):
        raise AssertionError(
            "these ranks hold no capture, so that there is nothing to compare: choose at least one"
        )
    subjects = {
        rank: _subject_of_program(made) for rank, made in zip(value.ranks, value, strict=True)
    }
    return RanksSubject(dict(value.mesh), dict(sorted(subjects.items())))


def _subject_of_program(value: object) -> Subject:
    """The graphs of anything but `Ranks`, see `subject_of`."""
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
