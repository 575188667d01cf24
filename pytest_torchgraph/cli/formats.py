"""Input, output and exit codes shared by the commands: stored files, text, Markdown, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TorchGraphError
from ..words import format_ranks, markdown_code

if TYPE_CHECKING:
    from ..api.result import Capture
    from ..graph.diff import Finding
    from ..graph.model import Graph
    from ..graph.program import Program


FORMATS = ("text", "markdown", "json")
JSON_VERSION = 1
"""Version of the JSON, incremented if programs that read it have to change."""
MAX_FILES = 5
"""Maximum number of files named in a table cell."""


def add_format(parser: Any, formats: Sequence[str] = FORMATS) -> None:
    """Declare `--format`, for a command or in a group of options of which one can be given."""
    parser.add_argument(
        "--format",
        choices=formats,
        default="text",
        help="format of the output (default: text); JSON has all details",
    )


BREAK = ("file", "line", "function", "code", "kind", "reason", "hint", "module")
"""Attributes of a graph break in the JSON."""


def named(value: object, names: Sequence[str]) -> dict[str, Any]:
    """Return some attributes of a value, by name."""
    return {name: getattr(value, name) for name in names}


def print_json(data: dict[str, Any]) -> None:
    """Print data as JSON, preceded by the version of the format."""
    print(json.dumps({"version": JSON_VERSION, **data}, indent=2))


def markdown_table(causes: Sequence[Finding], noun: str = "file") -> list[str]:
    """Return a table with one row per finding and a column with its files or ranks.

    Args:
        causes: the findings; without any, there is no table: [].
        noun: "file", or "rank" for a column with the ranks.
    """
    if not causes:
        return []
    from ..graph.diff import cost_text, form_lines, list_some

    costs = [cost_text(cause.cost) for cause in causes]
    # The column of costs is left out if no finding has a cost.
    head, rule = ("cost | ", "---|") if any(costs) else ("", "")
    lines = [f"| change | where | places | {head}{noun}s |", f"|---|---|---:|{rule}---|"]
    for cause, cost in zip(causes, costs, strict=True):
        data = cause.to_json()
        location = markdown_code(data["where"])
        if data["sources"]:
            location += f"<br>{list_some([markdown_code(line) for line in data['sources']], 1)}"
        owners = [*map(str, data["ranks"])] if noun == "rank" else data["files"]
        files = list_some([*map(markdown_code, owners)], MAX_FILES)
        lines_of_change = [f"{data['sign']} {data['what']}"]
        if cause.ranks and noun != "rank":
            lines_of_change.append(f"on {format_ranks(cause.ranks)}")
        calls = [data[word].partition("(")[1:] for word in ("before", "after")]  # the arguments
        # If only the op changed, the first line names both ops.
        if "forms" in data or data["with"] or not calls[0] == calls[1] != ("", ""):
            lines_of_change += form_lines(data)
        change = "<br>".join(map(markdown_code, lines_of_change))
        cells = (change, location, f"{data['places']:,}", *([cost] if any(costs) else []))
        lines.append(f"| {' | '.join(cells)} | {len(owners):,}: {files} |")
    return lines


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Declare `--rank` for a command that reads one program."""
    parser.add_argument(
        "--rank", metavar="N", type=int, help="rank to read, if the file stores several ranks"
    )


def add_truncated(parser: argparse.ArgumentParser) -> None:
    """Declare `--allow-truncated`."""
    parser.add_argument(
        "--allow-truncated",
        action="store_true",
        help="read what is whole of a log of torch that ends inside a record or a compilation",
    )


def read_document(file: Path, *, rank: int | None = None) -> Program:
    """Read a `.tgraph` file; for a file with several ranks, return the program of one rank.

    Args:
        file: its path.
        rank: the rank, required for a file with several ranks and refused for other files.

    Raises:
        GraphFormatError: for a malformed text, with the path and the position.
        TorchGraphError: for a file with several ranks if no rank is chosen, for a missing rank,
            and for a rank of a file without ranks.
        OSError: if the file cannot be read.
    """
    return of_rank(read_any_document(file), rank, file)


def read_any_document(file: Path, *, may_be_missing: bool = False) -> Program:
    """Read a file with the graphs of one or several ranks: a `.tgraph` file, or one of torch's.

    Args:
        file: its path.
        may_be_missing: if True, an empty file or the null device, which git passes for a missing
            file, is a document without graphs.
    """
    from ..api.torch_files import captures_in
    from ..graph.program import Program
    from ..graph.text import Header, parse_file, read_text

    if (found := captures_in(file)) is not None:
        return program_of(found)
    text = read_text(file)
    if may_be_missing and not text:
        return Program(Header())
    return parse_file(text, file)


def program_of(captures: Sequence[Capture]) -> Program:
    """Return the graphs of captures that were read from one file.

    A log of several processes has several captures, each of which becomes a rank. A process without
    a rank counts as rank 0.
    """
    from ..graph.program import Program

    programs = [Program(capture.header, capture.program, folded=True) for capture in captures]
    if len(programs) == 1:
        return programs[0]
    ranks = [(capture.rank or 0,) for capture in captures]
    return Program.of_ranks({}, [*zip(ranks, programs, strict=True)])


def of_rank(document: Program, rank: int | None, file: Path) -> Program:
    """Return the graphs of one rank, see `read_document`."""
    if not document.sections:
        # An empty document stands for a missing file, which lacks any rank.
        if rank is not None and document.graphs + document.counts:
            raise TorchGraphError(f"{file} stores a single capture, not ranks: leave out --rank")
        return document
    ranks_text = format_ranks(document.ranks)
    if rank is None:
        raise TorchGraphError(
            f"{file} stores {ranks_text}: choose a rank, such as --rank={min(document.of_rank)}"
        )
    if rank not in document.of_rank:
        raise TorchGraphError(f"{file} has no rank {rank}: it has {ranks_text}")
    return document.of_rank[rank]


def select_graphs(program: Program, name: str | None, file: Path) -> tuple[Graph, ...]:
    """Return the graphs of a file with this name; all graphs for `None`, () for only op counts.

    Raises:
        TorchGraphError: if the file has no graph, or no op counts of a graph, with this name.
    """
    names = [graph.name for graph in program.graphs] or [graph for graph, _ in program.counts]
    if name is not None and name not in names:
        raise TorchGraphError(f"{file} has no graph {name!r}: it has {', '.join(names) or 'none'}")
    return tuple(graph for graph in program.graphs if name in (None, graph.name))


EXIT_OK = 0
"""Exit code: nothing differs. Also used by a successful command that compares nothing."""

EXIT_DIFFERENT = 1
"""Exit code: the two sides differ."""

EXIT_TROUBLE = 2
"""Exit code: unreadable file, missing graph, failed drawing, or invalid arguments."""

EXIT_PIPE = 141
"""Exit code: the reader of the output went away before the comparison ended, as after SIGPIPE."""
