"""`diff OLD NEW`: print what distinguishes the graphs of two files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .documents import read_document
from .exit_codes import DIFFERENT, SAME

if TYPE_CHECKING:
    from ..graph.text.parse import Document


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser("diff", help="print what distinguishes two files")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="every finding in full")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the difference: of the graphs, or of op counts where one file holds these alone."""
    from ..graph.diff.report import diff_graphs

    old = read_document(options.old, may_be_missing=True)
    new = read_document(options.new, may_be_missing=True)
    if old.header.torch and new.header.torch and old.header.torch != new.header.torch:
        print(f"torch {old.header.torch} -> {new.header.torch}")
    if (old.counts or new.counts) and not (old.graphs and new.graphs):
        return _diff_counts(old, new)
    difference = diff_graphs(old.graphs, new.graphs)
    if not difference:
        return SAME
    print(difference.heading())
    everything = len(difference.findings)
    print(difference.to_text(limit=everything) if options.all else difference.to_text())
    return DIFFERENT


def _diff_counts(old: Document, new: Document) -> int:
    from ..graph.text.format import ran

    code = SAME
    before, after = _counts_by_op(old), _counts_by_op(new)
    for graph in sorted(old.runs.keys() & new.runs.keys()):
        if old.runs[graph] != new.runs[graph]:
            code = DIFFERENT
            print(f"{graph} {ran(new.runs[graph])}, before: {old.runs[graph]}")
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    for graph, op in changed:
        was, now = before.get((graph, op), 0), after.get((graph, op), 0)
        print(f"{graph}: {op}  {was} -> {now}")
    return DIFFERENT if changed else code


def _counts_by_op(document: Document) -> dict[tuple[str, str], int]:
    """How often each op occurs, by the graph's name and the op."""
    of_graphs = document.counts or [(graph.name, graph.op_counts) for graph in document.graphs]
    return {(graph, op): count for graph, counts in of_graphs for op, count in counts.items()}
