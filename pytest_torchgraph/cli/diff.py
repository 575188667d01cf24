"""`diff OLD NEW`: print what distinguishes the graphs of two files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TorchGraphError
from ..words import format_ranks
from .documents import add_rank, of_rank, read_any_document
from .exit_codes import DIFFERENT, SAME
from .formats import add_format, markdown_code, markdown_table, print_json

if TYPE_CHECKING:
    from ..graph.diff.findings import GraphDiff
    from ..graph.program import Program


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser("diff", help="print what distinguishes two files")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="every finding in full")
    add_rank(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the difference: of the graphs, or of op counts where one file holds these alone.

    Raises:
        TorchGraphError: for files with the graphs of other ranks, and for two empty files.
    """
    from ..graph.diff.joining import of_ranks
    from ..graph.diff.programs import diff_programs

    old = read_any_document(options.old, may_be_missing=True)
    new = read_any_document(options.new, may_be_missing=True)
    if _is_empty(old) and _is_empty(new):
        raise TorchGraphError(f"neither {options.old} nor {options.new} holds a graph")
    pairs = _pairs(old, new, options)
    torch = (old.header.torch, new.header.torch)
    upgrade = f"torch {torch[0]} -> {torch[1]}" if all(torch) and torch[0] != torch[1] else ""
    found = [(ranks, *diff_programs(before, after)) for ranks, before, after in pairs]
    own = [(ranks, _named(each, options.new)) for ranks, each, _ in found]
    difference = of_ranks(own) if own[0][0] else own[0][1]
    counts = [
        f"{format_ranks(ranks)}: {line}" if ranks else line
        for ranks, _, lines in found
        for line in lines
    ]
    note = _counts_alone(pairs, options)
    if note and options.format != "json":
        print(note)
    if options.format == "json":
        print_json(_data(difference, counts, list(torch) if upgrade else None))
    else:
        lines = [upgrade] if upgrade else []
        if options.format == "markdown":
            lines += _markdown(difference)
            lines += [f"- {markdown_code(line)}" for line in counts or ()]
        elif difference:
            every = difference.to_text(limit=len(difference.findings))
            lines += [difference.heading(), every if options.all else difference.to_text()]
        else:
            lines += counts or ()
        if lines:
            print("\n".join(lines))
    return DIFFERENT if difference or counts else SAME


def _pairs(
    old: Program, new: Program, options: argparse.Namespace
) -> Sequence[tuple[tuple[int, ...], Program, Program]]:
    """The graphs to compare, with the ranks that have them; of files without ranks with none."""
    from ..graph.diff.programs import same_ranks

    if options.rank is None:
        if old.sections and new.sections:
            return [*same_ranks(old, new)]
        if old.sections and _is_empty(new):
            return [(ranks, own, new) for ranks, own in old.sections]
        if new.sections and _is_empty(old):
            return [(ranks, old, own) for ranks, own in new.sections]
    before = of_rank(old, options.rank, options.old)
    return [((), before, of_rank(new, options.rank, options.new))]


def _is_empty(program: Program) -> bool:
    """Return True if it stands for a file that is not there."""
    return not program.graphs and not program.counts and not program.sections


def _counts_alone(
    pairs: Sequence[tuple[tuple[int, ...], Program, Program]], options: argparse.Namespace
) -> str:
    """A line for a file with graphs beside one with op counts: the graphs are not compared."""
    for _, *documents in pairs:
        before, after = documents
        if (before.graphs and after.counts) or (before.counts and after.graphs):
            file = options.old if before.counts else options.new
            return f"op counts alone are compared: {file} holds no graphs (detail ops)"
    return ""


def _named(difference: GraphDiff | None, file: Path) -> GraphDiff | None:
    """Return the difference with the name of the new file."""
    if difference is None:
        return None
    findings = (replace(finding, files=(file.name,)) for finding in difference.findings)
    return replace(difference, findings=tuple(findings))


def _data(
    difference: GraphDiff | None, counts: list[str] | None, releases: list[str] | None
) -> dict[str, Any]:
    data = difference.to_json() if difference else {"heading": "", "findings": []}
    return {**data, "counts": counts or [], "releases": releases}


def _markdown(difference: GraphDiff | None) -> list[str]:
    if not difference:
        return []
    noun = "rank" if difference.parts else "file"
    return [f"**{difference.heading()}**", "", *markdown_table(difference.findings, noun)]
