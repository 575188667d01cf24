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

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from ...errors import GraphFormatError
from ...files import read_bytes
from ...words import format_ranks, one_line
from ..program import Program
from .format import EAGER_VERSION, FACTS_VERSION, RANKS_VERSION
from .nodes import MAX_CHARACTERS, MAX_LINES, lines_of
from .parse import parse_document, refuse_conflict

MOST_RANKS = 1_000_000
"""Maximum total number of ranks in the headings of a text."""

_NAME = r'(?:[A-Za-z_][A-Za-z0-9_]*|"(?:[^"\\]|\\.)*")'
_SIZE = re.compile(rf"({_NAME})=([1-9][0-9]{{0,8}})(?:, (?!\Z)|\Z)")
_SPAN = re.compile(r"(0|[1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?(?:, (?!\Z)|\Z)")
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
    if lines[0] not in (f"torchgraph {RANKS_VERSION}", f"torchgraph {FACTS_VERSION}"):
        _fail(f"not a file of ranks: the first line must be 'torchgraph {FACTS_VERSION}'", 0)
    row = 1 if lines[1:] and lines[1].startswith("mesh ") else 2
    if row >= len(lines) or not lines[row].startswith("mesh "):
        _fail("expected 'mesh' and its sizes, such as 'mesh dp=2, tp=4'", row)
    mesh = _read_mesh(lines[row], row)
    origin = lines[1:row]
    sections: list[tuple[tuple[int, ...], Program]] = []
    room = [MAX_LINES, MAX_CHARACTERS]  # of all ranks together
    ranks_so_far: set[int] = set()
    for start, end in _spans_of_sections(lines, row + 1):
        ranks = _read_ranks(lines[start], start, ranks_so_far, math.prod(mesh.values()))
        sections.append((ranks, _read_document(lines, origin, start, end, room)))
    if not sections:
        _fail("the file contains no rank: it is empty or truncated", len(lines) - 1)
    return Program.of_ranks(mesh, sections)


def _fail(problem: str, row: int, pos: int = 0) -> NoReturn:
    raise GraphFormatError(problem, row + 1, pos + 1) from None


def _spans_of_sections(lines: list[str], row: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each section, from its heading up to the next heading."""
    starts = [n for n in range(row, len(lines)) if _HEADING.match(lines[n])]
    first = starts[0] if starts else len(lines)
    for number in range(row, first):
        if lines[number]:
            _fail("expected the ranks of these graphs, such as 'ranks 0-3, 7'", number)
    yield from pairwise([*starts, len(lines)])


def _read_mesh(line: str, row: int) -> dict[str, int]:
    mesh: dict[str, int] = {}
    pos = len("mesh ")
    while pos < len(line) or not mesh:
        match = _SIZE.match(line, pos)
        if match is None:
            _fail("expected a size of the mesh, such as 'tp=4'", row, pos)
        name = _unquote(match[1], row, pos)
        if name in mesh:
            _fail(f"duplicate dimension {name!r} of the mesh", row, pos)
        mesh[name] = int(match[2])
        pos = match.end()
    return mesh


def _unquote(name: str, row: int, pos: int) -> str:
    if name[0] != '"':
        return name
    try:
        return one_line(json.loads(name))
    except json.JSONDecodeError as error:
        _fail(f"not a JSON string: {error.msg}", row, pos)


def _read_ranks(line: str, row: int, ranks_so_far: set[int], world: int) -> tuple[int, ...]:
    """Return the ranks of a heading, and add them to `ranks_so_far`."""
    ranks: list[int] = []
    start = pos = line.index(" ") + 1
    while pos < len(line) or not ranks:
        match = _SPAN.match(line, pos)
        if match is None:
            _fail("expected ranks, such as 'ranks 0-3, 7'", row, pos)
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= world:
            _fail(f"rank {last} is out of range: the mesh has ranks 0 to {world - 1}", row, pos)
        if last - first + len(ranks_so_far) >= MOST_RANKS:
            _fail(f"expected at most {MOST_RANKS:,} ranks", row, pos)
        span = range(first, last + 1)
        twice = ranks_so_far.intersection(span)
        if twice:
            _fail(f"duplicate {format_ranks(twice)}", row, pos)
        ranks_so_far.update(span)
        ranks += span
        pos = match.end()
    if not ranks or format_ranks(ranks) != line:
        problem = f"ranks must be ascending, and consecutive ranks a range: {format_ranks(ranks)!r}"
        _fail(problem, row, start)
    return tuple(ranks)


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
    head = [lines[0].replace(f" {RANKS_VERSION}", f" {EAGER_VERSION}"), *origin, ""]
    text = "\n".join([*head, *lines[start + 1 : end]])
    try:
        return parse_document(text, room)
    except GraphFormatError as error:
        row = error.line - len(head)
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
