"""Comparison of captured graphs with stored ones.

    same_text     the quick test: equal texts
    compare       the graphs, at a level of detail; those of ranks pair by pair
    Mismatch      a comparison that failed, for the report
    Part          how some ranks differ

It knows graphs and texts, and nothing of pytest or syrupy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property

from ..errors import GraphFormatError
from ..graph import Finding, Graph, GraphDiff
from ..graph.model import Detail
from ..graph.text.format import format_document
from ..graph.text.parse import Document
from ..graph.text.ranks import RanksDocument, format_mesh, format_sections, parse_text
from ..words import format_ranks
from .programs import compare_programs, too_little
from .subject import RanksSubject, Subject

AnySubject = Subject | RanksSubject
"""What a test compares: the graphs of one program, or of several ranks."""
Stored = Document | RanksDocument
"""What a file holds."""

_HEADER = re.compile(
    r"(?P<version>torchgraph \d+)\n"
    r"(?:(?=\w)(?:via [^\s,]+)?(?:(?:^|, )torch [^\s,]+)?(?:(?:^|, )detail (?P<detail>\w+))?\n)?"
    r"(?P<mesh>mesh .*\n)?\n",
    re.MULTILINE,
)
"""The header of a document: version, origin (via, torch release), detail, and mesh of ranks."""


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
        parts: of ranks, those that differ and how; none where the ranks are others, and for the
            graphs of one program.
    """

    name: str
    path: str
    subject: AnySubject
    problem: str = ""
    details: tuple[str, ...] = ()
    stored: Stored | None = None
    is_new: bool = False
    origin: str = ""
    writes: str = ""
    refused: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def releases(self) -> tuple[str, str] | None:
        """The torch release of the stored graphs and the running one, where they differ."""
        old = self.stored.header.torch if self.stored else ""
        new = self.subject.header.torch
        return (old, new) if old and new and old != new else None

    @property
    def stored_text(self) -> str:
        """The stored graphs with one line a node; "" where none is stored."""
        stored = self.stored
        if stored is None or not stored.graphs:
            return ""
        detail = stored.header.detail
        if isinstance(stored, Document):
            return format_document(stored.graphs, stored.header, detail, fold=False)
        sections = [(each.ranks, each.document.graphs) for each in stored.sections]
        return format_sections(stored.mesh, sections, stored.header, detail, fold=False)

    @property
    def text_diff(self) -> list[str]:
        """The difference of the texts with one line a node; empty where no graph is stored."""
        if self.stored is None or not self.stored.graphs or not self.subject.graphs:
            return []
        now = self.subject.to_text(self.stored.header.detail, fold=False)
        return _text_diff(self.stored_text, now)

    @cached_property
    def diff(self) -> GraphDiff | None:
        """The difference of the graphs; `None` if only counts are stored, or nothing is."""
        if self.parts:
            from ..graph.diff.joining import of_ranks

            return of_ranks((part.ranks, part.diff) for part in self.parts)
        if not isinstance(self.stored, Document) or not isinstance(self.subject, Subject):
            return None
        return _diff(self.stored, self.subject)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What differs; of ranks each finding once, however many have it."""
        return self.diff.findings if self.diff else ()


@dataclass(frozen=True)
class Part:
    """How ranks that were equal, and are equal now, differ from what is stored for them.

    Attributes:
        ranks: their numbers, ascending.
        stored: their stored graphs.
        subject: what each of them captured.
        problem, details: as of `Mismatch`.
    """

    ranks: tuple[int, ...]
    stored: Document
    subject: Subject
    problem: str
    details: tuple[str, ...]

    @cached_property
    def diff(self) -> GraphDiff | None:
        """The difference of the graphs; None where only counts are stored."""
        return _diff(self.stored, self.subject)

    @property
    def text_diff(self) -> list[str]:
        """The difference of the texts with one line a node; empty where no graph is stored."""
        if not self.stored.graphs:
            return []
        header = self.stored.header
        stored = format_document(self.stored.graphs, header, header.detail, fold=False)
        return _text_diff(stored, self.subject.to_text(header.detail, fold=False))


def _text_diff(stored: str, now: str) -> list[str]:
    old, new = stored.splitlines(), now.splitlines()
    return list(unified_diff(old, new, "stored", "now", lineterm=""))


def _diff(stored: Document, subject: Subject) -> GraphDiff | None:
    if not stored.graphs or not subject.graphs:
        return None
    from ..graph.diff.report import diff_graphs

    return diff_graphs(stored.graphs, subject.graphs)


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


def read_stored(stored: str) -> Stored:
    """The document of a stored text.

    Raises:
        GraphFormatError: if it is malformed, with the position.
    """
    _check_encoding(stored)
    return parse_text(stored)


def parse_stored(stored: str, path: str) -> Stored:
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


def same_flat_text(stored: str, subject: AnySubject, detail: Detail) -> bool:
    """`same_text` with one line a node: files that were written so are not rewritten for that.

    Reading such a file and comparing its graphs takes many times as long.
    """
    return same_text(stored, subject.to_text(detail, fold=False))


def is_stored(stored: str, subject: AnySubject, detail: Detail) -> bool:
    """Whether a stored text holds a subject's graphs with this very detail; not if malformed."""
    if same_text(stored, subject.to_text(detail)) or same_flat_text(stored, subject, detail):
        return True
    try:
        document = read_stored(stored)
    except GraphFormatError:
        return False
    return document.header.detail == detail and compare(document, subject, detail) is None


def compare(
    stored: Stored, subject: AnySubject, detail: Detail
) -> tuple[str, tuple[str, ...]] | None:
    """Compare a subject with what a file holds.

    Args:
        stored: which may have more detail than is compared.
        subject: what the test captured.
        detail: "ops", "dataflow" or "full", see `graph_snapshot`.

    Returns:
        None for a match, else `problem` and `details` of the `Mismatch`.
    """
    if isinstance(stored, Document) and isinstance(subject, Subject):
        return compare_programs(stored, subject, detail)
    if isinstance(stored, RanksDocument) and isinstance(subject, RanksSubject):
        return _compare_ranks(stored, subject, detail)
    return (
        "the graphs of one capture and those of ranks are not compared",
        (f"stored:  {_kind(stored)}", f"now:     {_kind(subject)}"),
    )


def _kind(graphs: Stored | AnySubject) -> str:
    if isinstance(graphs, Document | Subject):
        return "one capture"
    return f"{format_ranks(graphs.ranks)} of {format_mesh(graphs.mesh)}"


def _compare_ranks(
    stored: RanksDocument, subject: RanksSubject, detail: Detail
) -> tuple[str, tuple[str, ...]] | None:
    if little := too_little(stored.header.detail, detail):
        return little
    if [*stored.mesh.items()] != [*subject.mesh.items()]:
        problem = "the mesh is not that of the stored ranks"
    elif stored.ranks != subject.ranks:
        problem = "the captured ranks are not those that are stored"
    else:
        differ = [rank for part in differing(stored, subject, detail) for rank in part.ranks]
        if not differ:
            return None
        verb = "differs" if len(differ) == 1 else "differ"
        same = sorted({*stored.ranks} - {*differ})
        rest = f", {format_ranks(same)} as stored" if same else ""
        return f"{format_ranks(differ)} {verb} from what is stored{rest}", ()
    return problem, (f"stored:  {_kind(stored)}", f"now:     {_kind(subject)}")


def differing(stored: Stored, subject: AnySubject, detail: Detail) -> Iterator[Part]:
    """The ranks that differ from what is stored for them; none where there are no ranks to compare.

    Ranks are taken together where they were equal and are equal now: where one of eight equal
    ranks changes, that one is a part.
    """
    for ranks, document, own in same_ranks(stored, subject, detail):
        found = compare_programs(document, own, detail)
        if found is not None:
            yield Part(ranks, document, own, *found)


def same_ranks(
    stored: Stored, subject: AnySubject, detail: Detail
) -> Iterator[tuple[tuple[int, ...], Document, Subject]]:
    """The ranks of a file and a subject, by what is stored for them and what they captured."""
    if not isinstance(stored, RanksDocument) or not isinstance(subject, RanksSubject):
        return
    if [*stored.mesh.items()] != [*subject.mesh.items()] or stored.ranks != subject.ranks:
        return
    if too_little(stored.header.detail, detail):
        return
    for section in stored.sections:
        for ranks, own in subject.classes(detail):
            if shared := {*section.ranks}.intersection(ranks):
                yield tuple(sorted(shared)), section.document, own


def programs_of(
    stored: Stored, subject: AnySubject, detail: Detail
) -> Iterator[tuple[tuple[Graph, ...], tuple[Graph, ...]]]:
    """The stored and the captured graphs of each program, of ranks those of each class."""
    if isinstance(stored, Document) and isinstance(subject, Subject):
        yield stored.graphs, subject.graphs
    for _, document, own in same_ranks(stored, subject, detail):
        yield document.graphs, own.graphs
