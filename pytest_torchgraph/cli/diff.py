"""`diff OLD NEW`: print what distinguishes the graphs of two files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .documents import read_document
from .exit_codes import DIFFERENT, SAME
from .formats import add_format, markdown_code, markdown_table, print_json

if TYPE_CHECKING:
    from ..graph.diff.findings import GraphDiff


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser("diff", help="print what distinguishes two files")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="every finding in full")
    add_format(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the difference: of the graphs, or of op counts where one file holds these alone."""
    from ..graph.diff.counts import differing_counts
    from ..graph.diff.report import diff_graphs

    old = read_document(options.old, may_be_missing=True)
    new = read_document(options.new, may_be_missing=True)
    torch = (old.header.torch, new.header.torch)
    upgrade = f"torch {torch[0]} -> {torch[1]}" if all(torch) and torch[0] != torch[1] else ""
    difference, counts = None, None
    if (old.counts or new.counts) and not (old.graphs and new.graphs):
        counts = differing_counts(old, new)
    else:
        difference = diff_graphs(old.graphs, new.graphs)
    if options.format == "json":
        print_json(_data(difference, counts, list(torch) if upgrade else None, str(options.new)))
    else:
        lines = [upgrade] if upgrade else []
        if options.format == "markdown":
            lines += _markdown(difference, str(options.new))
            lines += [f"- {markdown_code(line)}" for line in counts or ()]
        elif difference:
            every = len(difference.findings)
            findings = difference.to_text(limit=every) if options.all else difference.to_text()
            lines += [difference.heading(), findings]
        else:
            lines += counts or ()
        if lines:
            print("\n".join(lines))
    return DIFFERENT if difference or counts else SAME


def _data(
    difference: GraphDiff | None, counts: list[str] | None, releases: list[str] | None, file: str
) -> dict[str, Any]:
    from ..graph.diff.causes import causes_of
    from ..graph.diff.described import cause_in_words

    findings = causes_of([(file, difference)]) if difference else ()
    return {
        "heading": difference.heading() if difference else "",
        "findings": [cause_in_words(each).to_json() for each in findings],
        "counts": counts or [],
        "releases": releases,
    }


def _markdown(difference: GraphDiff | None, file: str) -> list[str]:
    from ..graph.diff.causes import causes_of
    from ..graph.diff.described import cause_in_words

    if not difference:
        return []
    causes = [cause_in_words(each) for each in causes_of([(file, difference)])]
    return [f"**{difference.heading()}**", "", *markdown_table(causes)]
