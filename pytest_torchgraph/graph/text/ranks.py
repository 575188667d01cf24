r"""The graphs of several ranks in one text: ranks with equal graphs share a section.

    ranks    = "torchgraph" version NL [origin NL] "mesh" size { "," size } NL { NL section }
    size     = name "=" number
    section  = heading NL { NL graph }
    heading  = "rank" number | "ranks" span { "," span }
    span     = number ["-" number]

The version is 3, or 4 if a graph requires it. `parse` and `expand` define `origin` and `graph`, as
in version 2 or 4. The ranks of a heading ascend, and each rank has one section.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path

from ...errors import GraphFormatError
from ...files import read_bytes
from ...words import format_ranks
from ..program import Program
from .format import EAGER_VERSION, FACTS_VERSION, RANKS_VERSION
from .nodes import MAX_CHARACTERS, MAX_LINES, WORD, ValueReader, lines_of
from .parse import parse_document, refuse_conflict

MOST_RANKS = 1_000_000
"""Maximum total number of ranks in the headings of a text."""

_SIZE = re.compile(r"[1-9][0-9]{0,8}")
_RANK = re.compile(r"0|[1-9][0-9]{0,8}")
_FIRST = re.compile(
    rf"torchgraph (?:{RANKS_VERSION}\r?(?:\n|\Z)|{FACTS_VERSION}\r?\n(?:[^m\r\n].*\n)?mesh )"
)
_HEADING = re.compile(r"ranks? (?=[0-9])")


def parse_text(text: str) -> Program:
    """Parse the text of one capture's graphs, or of several ranks' graphs.

    Raises:
        GraphFormatError: with line and column.
    """
    if _FIRST.match(text):
        return parse_ranks(text)
    return parse_document(text)


def parse_ranks(text: str) -> Program:
    """Parse the text of several ranks' graphs.

    Raises:
        GraphFormatError: with line and column.
    """
    lines = lines_of(text)
    refuse_conflict(lines)
    reader = _Reader(lines)
    if lines[0] not in (f"torchgraph {RANKS_VERSION}", f"torchgraph {FACTS_VERSION}"):
        reader.fail(f"not a file of ranks: the first line must be 'torchgraph {FACTS_VERSION}'")
    row = (
        1 if lines[1:] and lines[1].startswith("mesh ") else 2
    )  # after the origin, if there is one
    reader.read_mesh(row)
    sections: list[tuple[tuple[int, ...], Program]] = []
    room = [MAX_LINES, MAX_CHARACTERS]  # of all ranks together
    headings = [n for n in range(row + 1, len(lines)) if _HEADING.match(lines[n])]
    starts = [*headings, len(lines)]
    for number in range(row + 1, starts[0]):
        if lines[number]:
            reader.fail("expected the ranks of these graphs, such as 'ranks 0-3, 7'", 0, number)
    for start, end in pairwise(starts):
        ranks = reader.read_heading(start)
        sections.append((ranks, _read_document(lines, lines[1:row], start, end, room)))
    if not sections:
        reader.fail("the file contains no rank: it is empty or truncated", 0, len(lines) - 1)
    return Program.of_ranks(reader.mesh, sections)


class _Reader(ValueReader):
    """Reader of the lines that a text of ranks has besides its graphs.

    Attributes:
        mesh: sizes of the mesh by dimension name, in order.
        world: the number of ranks of the mesh.
        ranks: the ranks of all headings so far.
    """

    def __init__(self, lines: list[str]):
        super().__init__(lines)
        self.mesh: dict[str, int] = {}
        self.world = 1
        self.ranks: set[int] = set()

    def read_mesh(self, row: int) -> None:
        """Read the sizes of the mesh in the line `row`."""
        self.row = row - 1  # `next_line` sets the text
        self.next_line()
        if not self.skip("mesh "):
            self.fail("expected 'mesh' and its sizes, such as 'mesh dp=2, tp=4'", 0, row)
        self.read_items(self.read_size)
        self.expect_end_of_line()
        self.world = math.prod(self.mesh.values())

    def read_size(self) -> None:
        size = "a size of the mesh, such as 'tp=4'"
        start = self.pos
        name = self.read_text() if self.at('"') else self.match(WORD, size)
        if name in self.mesh:
            self.fail(f"duplicate dimension {name!r} of the mesh", start)
        self.expect("=")
        self.mesh[name] = int(self.match(_SIZE, size))

    def read_heading(self, row: int) -> tuple[int, ...]:
        """Read the ranks of a section in the line `row`, its heading."""
        self.row = row - 1
        self.next_line()
        start = self.pos = self.text.index(" ") + 1
        ranks: list[int] = []
        for span in self.read_items(self.read_span):
            ranks += span
        self.expect_end_of_line()
        if not ranks or format_ranks(ranks) != self.text:
            problem = "ranks must be ascending, and consecutive ranks a range"
            self.fail(f"{problem}: {format_ranks(ranks)!r}", start)
        return tuple(ranks)

    def read_span(self) -> range:
        """Read `3` or `0-3`, and add the ranks to `ranks`."""
        start = self.pos
        ranks = "ranks, such as 'ranks 0-3, 7'"
        first = int(self.match(_RANK, ranks))
        last = int(self.match(_RANK, ranks)) if self.skip("-") else first
        if last >= self.world:
            self.fail(
                f"rank {last} is out of range: the mesh has ranks 0 to {self.world - 1}", start
            )
        if last - first + len(self.ranks) >= MOST_RANKS:
            self.fail(f"expected at most {MOST_RANKS:,} ranks", start)
        span = range(first, last + 1)
        if twice := self.ranks.intersection(span):
            self.fail(f"duplicate {format_ranks(twice)}", start)
        self.ranks.update(span)
        return span


def _read_document(
    lines: list[str], origin: list[str], start: int, end: int, room: list[int]
) -> Program:
    """Parse the graphs of a section.

    Args:
        lines: lines of the whole text.
        origin: the origin line; empty if the text has no origin line.
        start, end: bounds of the section; its heading is the first line.
        room: see `expand_lines`; shared by all sections.
    """
    # Version 3 only has several ranks; the text of one capture is then of version 2.
    head = [lines[0].replace(f" {RANKS_VERSION}", f" {EAGER_VERSION}"), *origin, ""]
    text = "\n".join([*head, *lines[start + 1 : end]])
    try:
        return parse_document(text, room)
    except GraphFormatError as error:
        row = error.line - len(head)
        # An error in the head is in the first lines of the whole text, which have the same numbers.
        line = start + 1 + row if row > 0 else error.line
        raise GraphFormatError(error.problem, line, error.column) from None


def read_text(path: Path, only_files: bool = False) -> str:
    """Read the text of a file, or unless `only_files` of a FIFO or device.

    Raises:
        GraphFormatError: with the path, if the file is not UTF-8.
        OSError: if the file cannot be read.
    """
    try:
        return read_bytes(path, only_files=only_files).decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphFormatError(f"not UTF-8: {error.reason}", path=str(path)) from None


def parse_file(text: str, path: Path) -> Program:
    """Parse the text of a file.

    Raises:
        GraphFormatError: for a malformed text, with the path and the position.
    """
    try:
        return parse_text(text)
    except GraphFormatError as error:
        raise GraphFormatError(error.problem, error.line, error.column, str(path)) from None
