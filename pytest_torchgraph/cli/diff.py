"""`diff OLD NEW`: print the difference of two files, or by cause of two directories."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from ..errors import TorchGraphError
from ..words import format_ranks, markdown_code
from .documents import add_rank, of_rank, read_any_document
from .exit_codes import DIFFERENT, SAME, TROUBLE
from .formats import add_format, markdown_table, print_json

if TYPE_CHECKING:
    from ..api.comparison import Comparison
    from ..graph.diff.causes import Cause
    from ..graph.diff.findings import GraphDiff
    from ..graph.text.parse import Document
    from ..graph.text.ranks import RanksDocument


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "diff",
        help="print what distinguishes two files, or two directories by cause",
        description="Compare two .tgraph files, or the files of two directories and of those below "
        "them, by their relative paths, and print each edit once with the files that it is found "
        "in. Exit codes: 0 if nothing differs, 1 if something does, 2 for trouble.",
    )
    parser.add_argument("old", type=Path, help="a file, or a directory")
    parser.add_argument(
        "new",
        type=Path,
        nargs="?",
        help="likewise; without it, OLD is a directory that --torchgraph-artifacts wrote, and what "
        "was stored is compared with what was captured",
    )
    parser.add_argument("--all", action="store_true", help="every finding and file in full")
    add_rank(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the difference.

    Raises:
        TorchGraphError: for files with the graphs of other ranks, for two empty files, and for
            directories see `api.comparison.compare`.
        OSError: for a path that does not exist.
    """
    if options.new is None or options.old.is_dir() or options.new.is_dir():
        return _directories(options)
    return _files(options)


def _directories(options: argparse.Namespace) -> int:
    """Print the causes; an unreadable file is trouble, after all others were compared."""
    from ..api.comparison import compare

    if options.rank is not None:
        raise TorchGraphError("--rank is of two files, not of directories: leave it out")
    found = compare(options.old, options.new)
    if options.format == "json":
        print_json(_data_of_directories(found))
    elif options.format == "markdown":
        print("\n".join(_markdown_of_directories(found)))
    else:
        print(found.to_text(limit=None) if options.all else found)
    if found.unreadable:
        return TROUBLE
    return DIFFERENT if found else SAME


def _files(options: argparse.Namespace) -> int:
    """Print the difference of the graphs, or of op counts if one file holds only these."""
    from ..graph.diff.ranks import diff_of_ranks

    old = read_any_document(options.old, may_be_missing=True)
    new = read_any_document(options.new, may_be_missing=True)
    if _is_empty(old) and _is_empty(new):
        raise TorchGraphError(f"neither {options.old} nor {options.new} holds a graph")
    pairs = _pairs(old, new, options)
    torch = (old.header.torch, new.header.torch)
    upgrade = f"torch {torch[0]} -> {torch[1]}" if all(torch) and torch[0] != torch[1] else ""
    found = [(ranks, *_differences(before, after)) for ranks, before, after in pairs]
    own = [(ranks, each) for ranks, each, _ in found]
    difference = diff_of_ranks(own) if own[0][0] else own[0][1]
    counts = [
        f"{format_ranks(ranks)}: {line}" if ranks else line
        for ranks, _, lines in found
        for line in lines
    ]
    note = _counts_alone(pairs, options)
    if note and options.format != "json":
        print(note)
    if options.format == "json":
        print_json(_data(difference, counts, list(torch) if upgrade else None, str(options.new)))
    else:
        lines = [upgrade] if upgrade else []
        if options.format == "markdown":
            lines += _markdown(difference, str(options.new))
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


def _data(
    difference: GraphDiff | None, counts: list[str] | None, releases: list[str] | None, file: str
) -> dict[str, Any]:
    from ..graph.diff.causes import causes_of
    from ..graph.diff.described import cause_in_words

    findings = causes_of([(file, difference)]) if difference else ()
    return {
        "heading": difference.heading() if difference else "",
        "findings": [
            {**cause_in_words(each).to_json(), "ranks": _ranks(each, difference)}
            for each in findings
        ],
        "counts": counts or [],
        "releases": releases,
    }


def _markdown(difference: GraphDiff | None, file: str) -> list[str]:
    from ..graph.diff.causes import causes_of
    from ..graph.diff.described import cause_in_words
    from ..graph.diff.ranks import RanksDiff

    if not difference:
        return []
    causes = []
    for cause in causes_of([(file, difference)]):
        ranks = tuple(map(str, _ranks(cause, difference)))
        causes.append(replace(cause_in_words(cause), files=ranks or cause.files))
    noun = "rank" if isinstance(difference, RanksDiff) else "file"
    return [f"**{difference.heading()}**", "", *markdown_table(causes, noun)]


def _ranks(cause: Cause, difference: GraphDiff | None) -> list[int]:
    """The ranks that have an edit; none of files that hold one capture."""
    from ..graph.diff.ranks import RanksDiff

    if not isinstance(difference, RanksDiff):
        return []
    own = {id(finding) for finding in cause.findings}
    pairs = zip(difference.findings, difference.ranks, strict=True)
    return sorted({rank for finding, ranks in pairs if id(finding) in own for rank in ranks})


def _data_of_directories(found: Comparison) -> dict[str, Any]:
    return {
        "causes": [cause.to_json() for cause in found.in_words()],
        "compared": len(found.compared),
        "changed": list(found.changed),
        "added": list(found.added),
        "removed": list(found.removed),
        "renamed": list(found.renamed),
        "counts": {file: list(lines) for file, lines in found.counts.items()},
        "unreadable": dict(found.unreadable),
        "releases": {file: list(pair) for file, pair in found.releases.items()},
    }


def _markdown_of_directories(found: Comparison) -> list[str]:
    lines = [f"**{found.heading()}**"]
    table = markdown_table(found.in_words())
    lines += ["", *table] if table else []
    listed = [
        *(
            (f"op counts: {'; '.join(map(markdown_code, counts))}", files)
            for counts, files in found.files_by_counts().items()
        ),
        ("added", found.added),
        ("removed", found.removed),
        ("other names, strides or devices alone", found.renamed),
        ("cannot be read", tuple(found.unreadable.values())),
    ]
    items = [f"- {word}: {', '.join(map(markdown_code, files))}" for word, files in listed if files]
    return [*lines, "", *items] if items else lines
