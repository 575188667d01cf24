"""`diff OLD NEW`: print what distinguishes the graphs of two files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from ..errors import TorchGraphError
from ..words import format_ranks
from .documents import add_rank, of_rank, read_any_document
from .exit_codes import DIFFERENT, SAME
from .formats import add_format, markdown_code, markdown_table, print_json

if TYPE_CHECKING:
    from ..graph.diff.findings import GraphDiff
    from ..graph.text.parse import Document
    from ..graph.text.ranks import RanksDocument


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

    old = read_any_document(options.old, may_be_missing=True)
    new = read_any_document(options.new, may_be_missing=True)
    if _is_empty(old) and _is_empty(new):
        raise TorchGraphError(f"neither {options.old} nor {options.new} holds a graph")
    pairs = _pairs(old, new, options)
    torch = (old.header.torch, new.header.torch)
    upgrade = f"torch {torch[0]} -> {torch[1]}" if all(torch) and torch[0] != torch[1] else ""
    found = [(ranks, *_differences(before, after)) for ranks, before, after in pairs]
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
    old: Document | RanksDocument, new: Document | RanksDocument, options: argparse.Namespace
) -> Sequence[tuple[tuple[int, ...], Document, Document]]:
    """The graphs to compare, with the ranks that have them; of files without ranks with none."""
    from ..graph.diff.ranks import same_ranks
    from ..graph.text.parse import Document

    if options.rank is None:
        if not isinstance(old, Document) and not isinstance(new, Document):
            return [*same_ranks(old, new)]
        if not isinstance(old, Document) and _is_empty(new):
            return [(each.ranks, each.document, new) for each in old.sections]
        if not isinstance(new, Document) and _is_empty(old):
            return [(each.ranks, old, each.document) for each in new.sections]
    before = of_rank(old, options.rank, options.old)
    return [((), before, of_rank(new, options.rank, options.new))]


def _is_empty(document: Document | RanksDocument) -> TypeGuard[Document]:
    """Whether it stands for a file that is not there."""
    from ..graph.text.parse import Document

    return isinstance(document, Document) and not document.graphs and not document.counts


def _counts_alone(
    pairs: Sequence[tuple[tuple[int, ...], Document, Document]], options: argparse.Namespace
) -> str:
    """A line for a file with graphs beside one with op counts: the graphs are not compared."""
    for _, *documents in pairs:
        before, after = documents
        if (before.graphs and after.counts) or (before.counts and after.graphs):
            file = options.old if before.counts else options.new
            return f"op counts alone are compared: {file} holds no graphs (detail ops)"
    return ""


def _differences(old: Document, new: Document) -> tuple[GraphDiff | None, list[str]]:
    """The difference of the graphs, or the op counts that differ."""
    from ..graph.diff.counts import differing_counts
    from ..graph.diff.report import diff_graphs

    if (old.counts or new.counts) and not (old.graphs and new.graphs):
        return None, differing_counts(old, new)
    return diff_graphs(old.graphs, new.graphs), []


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
