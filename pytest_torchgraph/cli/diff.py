"""`diff OLD NEW`: print the difference of two files, or of two directories grouped by cause."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TorchGraphError
from ..files import write
from ..words import format_ranks, grouped, markdown_code, markdown_text, one_line
from .formats import (
    EXIT_DIFFERENT,
    EXIT_OK,
    EXIT_TROUBLE,
    add_format,
    add_rank,
    add_truncated,
    markdown_table,
    of_rank,
    print_json,
    read_any_document,
)

if TYPE_CHECKING:
    from ..graph.diff import GraphDiff
    from ..graph.program import Program


LISTED = 10
"""Maximum number of findings to print without --all."""


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "diff",
        help="print the differences between two files, or between two directories, by cause",
        description="Compare two .tgraph files, or all .tgraph files of two directory trees by "
        "relative path. Logs of TORCH_TRACE, programs of torch.export.save and printed graphs may "
        "stand in place of .tgraph files. Two directories written by pytest "
        "--torchgraph-save-run=DIR are compared by cause over all tests. "
        "Print every edit once, with the files that contain it. Exit codes: 0 if "
        "nothing differs, 1 if something differs, 2 on an error.",
    )
    parser.add_argument("old", type=Path, help="a .tgraph file, a file of torch's, or a directory")
    parser.add_argument(
        "new",
        type=Path,
        nargs="?",
        help="the same on the other side. Without NEW, OLD must be a directory written by "
        "--torchgraph-artifacts: its stored graphs are compared with its captured graphs",
    )
    parser.add_argument("--all", action="store_true", help="print all findings and files in full")
    parser.add_argument("--why", action="store_true", help="say why each finding is one")
    parser.add_argument(
        "-o", "--output", metavar="FILE.html", type=Path, help="for saved runs, also write a page"
    )
    add_rank(parser)
    add_truncated(parser)
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the difference.

    Raises:
        TorchGraphError: for files with different ranks and for two empty files; for directories,
            see `api.differences.diff`.
        OSError: for a missing path.
    """
    from ..api.torch_files import kind_of
    from ..runs import is_run

    paths = [path for path in (options.old, options.new) if path is not None]
    # Also if only one of them is a saved run: `diff_runs` says what is wrong with the other.
    if len(paths) == 2 and any(map(is_run, paths)):
        return _runs(options)
    if options.output is not None:
        raise TorchGraphError("-o writes a page of two saved runs: leave out -o")
    if len(paths) < 2 or any(path.is_dir() or kind_of(path) for path in paths):
        return _directories(options)
    return _files(options)


def _runs(options: argparse.Namespace) -> int:
    """Compare two saved runs, print the causes, and write the page. Return the exit code."""
    from ..runs import diff_runs, page_data

    difference = diff_runs(options.old, options.new)
    if options.output is not None:
        from ..report.page import page

        write(options.output, page(page_data(difference), {}))  # all data are in the page itself
    if options.format == "json":
        print_json(difference.to_json())
    elif options.format == "markdown":
        print(difference.to_markdown())
    else:
        text = difference.to_text(None if options.all else LISTED, why=options.why)
        print("\n".join(filter(None, (*difference.notes, difference.heading(), text))))
    return difference.exit_status


def _directories(options: argparse.Namespace) -> int:
    """Compare directories or files of torch's, and print the findings. Return the exit code.

    The exit code is `EXIT_TROUBLE` for unreadable files.
    """
    from ..api.differences import diff

    if options.rank is not None:
        raise TorchGraphError("--rank applies to .tgraph files: leave out --rank")
    try:
        truncated: Any = "allow" if options.allow_truncated else "refuse"
        difference = diff(options.old, options.new, truncated=truncated)
    except TypeError as error:
        raise TorchGraphError(str(error)) from None
    if options.format == "json":
        print_json(difference.to_json())
    elif options.format == "markdown":
        if difference.files is not None and difference.files.of_directories:
            lines = _markdown_of_directories(difference)
        else:
            lines = _markdown(_with_file_name(difference, options.new))
        print("\n".join(lines or [_heading(difference)]))
    else:
        text = difference.to_text(None if options.all else LISTED, why=options.why)
        # Without findings, the text is the heading again.
        print("\n".join(dict.fromkeys(filter(None, (difference.heading(), text)))))
    if difference.files is not None and difference.files.unreadable:
        return EXIT_TROUBLE
    return EXIT_DIFFERENT if difference else EXIT_OK


def _files(options: argparse.Namespace) -> int:
    """Print the difference of the graphs, or of the op counts if a file stores only counts.

    Return the exit code.
    """
    from ..graph.diff import FilesDiff, GraphDiff, diff_files, merge_ranks

    old = read_any_document(options.old, may_be_missing=True)
    new = read_any_document(options.new, may_be_missing=True)
    if _is_empty(old) and _is_empty(new):
        raise TorchGraphError(f"nothing to compare: {options.old} and {options.new} are empty")
    pairs = _pairs(old, new, options)
    torch = (old.header.torch, new.header.torch)
    upgrade = f"torch {torch[0]} -> {torch[1]}" if all(torch) and torch[0] != torch[1] else ""
    # For each pair: the ranks, the difference (`None` if only counts are compared), and the lines
    # of differing counts.
    differences = [(ranks, *diff_files(before, after)) for ranks, before, after in pairs]
    named_differences = [
        (ranks, _with_file_name(difference, options.new)) for ranks, difference, _ in differences
    ]
    # A single capture has one pair, without ranks.
    difference = (
        merge_ranks(named_differences) if named_differences[0][0] else named_differences[0][1]
    )
    counts = [
        f"{format_ranks(ranks)}: {line}" if ranks else line
        for ranks, _, lines in differences
        for line in lines
    ]
    if options.format == "json":
        name = one_line(options.new.name)
        files = FilesDiff(
            (name,),
            changed=(name,) if difference or counts else (),
            counts={name: tuple(counts)} if counts else {},
            releases={name: torch} if upgrade else {},
            of_directories=False,
        )
        print_json(replace(difference or GraphDiff(()), files=files).to_json())
    else:
        lines = [*filter(None, (_note_counts_only(pairs, options), upgrade))]
        if options.format == "markdown":
            lines = [*map(markdown_text, lines)]
            lines += [*_markdown(difference), *(f"- {markdown_code(line)}" for line in counts)]
        elif difference:
            limit = len(difference.findings) if options.all else LISTED
            lines += [difference.heading(), difference.to_text(limit, why=options.why)]
        else:
            lines += counts
        if lines:
            print("\n".join(lines))
    return EXIT_DIFFERENT if difference or counts else EXIT_OK


def _pairs(
    old: Program, new: Program, options: argparse.Namespace
) -> Sequence[tuple[tuple[int, ...], Program, Program]]:
    """Return the graphs to compare with their ranks; the ranks are empty for a single capture."""
    from ..graph.diff import same_ranks

    if options.rank is None:
        if old.sections and new.sections:
            return [*same_ranks(old, new)]
        # Of a missing file, all ranks were added or removed.
        if old.sections and _is_empty(new):
            return [(ranks, rank_program, new) for ranks, rank_program in old.sections]
        if new.sections and _is_empty(old):
            return [(ranks, old, rank_program) for ranks, rank_program in new.sections]
    before = of_rank(old, options.rank, options.old)
    return [((), before, of_rank(new, options.rank, options.new))]


def _is_empty(program: Program) -> bool:
    """Return True if the program represents a missing file."""
    return not program.graphs and not program.counts and not program.sections


def _note_counts_only(
    pairs: Sequence[tuple[tuple[int, ...], Program, Program]], options: argparse.Namespace
) -> str:
    """Return a note if one file has only op counts and the other has graphs; else ""."""
    for _, *documents in pairs:
        before, after = documents
        if (before.graphs and after.counts) or (before.counts and after.graphs):
            file = options.old if before.counts else options.new
            return (
                f"only op counts are compared: {file} was stored with detail='ops', so it has no "
                "graphs"
            )
    return ""


def _with_file_name(difference: GraphDiff | None, file: Path) -> GraphDiff | None:
    """Return a difference whose findings name the new file; `None` for `None`."""
    if difference is None:
        return None
    findings = (replace(finding, files=(one_line(file.name),)) for finding in difference.findings)
    return replace(difference, findings=tuple(findings))


def _markdown(difference: GraphDiff | None) -> list[str]:
    """Return a heading and a table of the findings; [] if there is no difference."""
    if not difference:
        return []
    noun = "rank" if difference.parts else "file"
    return [_heading(difference), "", *markdown_table(difference.findings, noun)]


def _heading(difference: GraphDiff) -> str:
    return f"**{markdown_text(difference.heading())}**"


def _markdown_of_directories(difference: GraphDiff) -> list[str]:
    """Return a heading, a table of the findings, and a list of the files that have none."""
    lines = [_heading(difference)]
    table = markdown_table(difference.findings)
    lines += ["", *table] if table else []
    files = difference.files
    assert files is not None
    by_counts = grouped((counts, file) for file, counts in files.counts.items())
    sections: list[tuple[str, Iterable[str]]] = [
        *(
            (f"op counts: {'; '.join(map(markdown_code, counts))}", names)
            for counts, names in by_counts.items()
        ),
        ("added", files.added),
        ("removed", files.removed),
        ("only names, strides or devices differ", files.renamed),
        ("cannot be read", files.unreadable.values()),
    ]
    items = [
        f"- {title}: {', '.join(map(markdown_code, names))}" for title, names in sections if names
    ]
    return [*lines, "", *items] if items else lines
