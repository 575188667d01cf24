"""`python -m pytest_torchgraph`: read, compare and draw stored graphs, without torch.

    show FILE              print the graphs; as git's textconv
    diff OLD NEW           print the difference; as git's difftool
    render FILE OUT        draw a graph, or with --against=OLD the difference

Exit codes are those of diff: 0 where nothing differs, 1 where something does, 2 for trouble.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GraphFormatError, TorchGraphError

if TYPE_CHECKING:
    from ..graph.model import Graph
    from ..graph.parse import Document

SAME, DIFFERENT, TROUBLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the pager was left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SAME
    except (TorchGraphError, OSError, UnicodeDecodeError) as error:
        print(f"pytest_torchgraph: {error}", file=sys.stderr)
        return TROUBLE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_torchgraph", description="Stored graphs (.tgraph files)."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    show = commands.add_parser("show", help="print the graphs of a file")
    show.add_argument("file", type=Path)
    show.add_argument("--graph", metavar="NAME", help="only this one")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--table", action="store_true", help="as a table of nodes, as torch.fx does")
    form.add_argument("--ops", action="store_true", help="how often which op occurs")
    show.set_defaults(run=_show)

    diff = commands.add_parser("diff", help="print what distinguishes two files")
    diff.add_argument("old", type=Path)
    diff.add_argument("new", type=Path)
    diff.add_argument("--all", action="store_true", help="every finding in full")
    diff.set_defaults(run=_diff)

    render = commands.add_parser("render", help="draw a graph: .svg, .png, .pdf or .dot")
    render.add_argument("file", type=Path)
    render.add_argument("out", type=Path)
    render.add_argument("--graph", metavar="NAME", help="which one, where the file has several")
    render.add_argument(
        "--against", metavar="OLD", type=Path, help="draw what distinguishes the file from this one"
    )
    render.set_defaults(run=_render)
    return parser


def _show(options: argparse.Namespace) -> int:
    from ..graph.text import format_document

    document = _read(options.file)
    if document.counts and not document.graphs:
        if options.table:
            raise TorchGraphError(f"{options.file} holds counts of ops alone, no nodes")
        _print_counts(document.counts, options.graph)
        return SAME
    graphs = _selected(document.graphs, options.graph, options.file)
    if options.table:
        print("\n\n".join(f"{graph.name}\n{graph.to_table()}" for graph in graphs))
    elif options.ops:
        _print_counts([(graph.name, dict(graph.op_counts)) for graph in graphs], None)
    else:
        print(format_document(graphs, document.header, document.header.detail), end="")
    return SAME


def _print_counts(counts: Sequence[tuple[str, dict[str, int]]], name: str | None) -> None:
    for graph, found in counts:
        if name in (None, graph):
            print(graph)
            for op, count in sorted(found.items(), key=lambda item: (-item[1], item[0])):
                print(f"  {count:6} {op}")


def _diff(options: argparse.Namespace) -> int:
    from ..graph.diff.report import diff_graphs

    old, new = _read(options.old, missing=True), _read(options.new, missing=True)
    if old.header.torch and new.header.torch and old.header.torch != new.header.torch:
        print(f"torch {old.header.torch} -> {new.header.torch}")
    if (old.counts or new.counts) and not (old.graphs and new.graphs):
        return _diff_counts(old, new)
    found = diff_graphs(old.graphs, new.graphs)
    if not found:
        return SAME
    print(found.heading())
    print(found.to_text(limit=len(found.findings) if options.all else 10))
    return DIFFERENT


def _diff_counts(old: Document, new: Document) -> int:
    before, after = (
        {
            (name, op): count
            for name, counts in each.counts or [(g.name, dict(g.op_counts)) for g in each.graphs]
            for op, count in counts.items()
        }
        for each in (old, new)
    )
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    for name, op in changed:
        was, now = before.get((name, op), 0), after.get((name, op), 0)
        print(f"{name}: {op}  {was} -> {now}")
    return DIFFERENT if changed else SAME


def _render(options: argparse.Namespace) -> int:
    from ..graph.diff.report import diff_graphs
    from ..render.to_file import render

    document = _read(options.file)
    if options.against is not None:
        found = diff_graphs(_read(options.against).graphs, document.graphs)
        if not found:
            raise TorchGraphError("nothing differs, so there is nothing to draw")
        print(render(found, options.out))
        return SAME
    graphs = _selected(document.graphs, options.graph, options.file)
    if len(graphs) != 1:
        names = ", ".join(graph.name for graph in graphs) or "none"
        raise TorchGraphError(
            f"{options.file} has {len(graphs)} graphs ({names}): choose one with --graph"
        )
    print(render(graphs[0], options.out))
    return SAME


def _selected(graphs: Sequence[Graph], name: str | None, file: Path) -> tuple[Graph, ...]:
    found = tuple(graph for graph in graphs if name in (None, graph.name))
    if not found and graphs:
        names = ", ".join(graph.name for graph in graphs)
        raise TorchGraphError(f"{file} has no graph {name!r}: it has {names}")
    return found


def _read(file: Path, *, missing: bool = False) -> Document:
    """What a file holds.

    Args:
        file: its path.
        missing: whether an empty file or the null device, by which git means a file that is not
            there, counts as one without graphs.
    """
    from ..graph.parse import Document, parse_document
    from ..graph.text import Header

    text = file.read_bytes().decode("utf-8")
    if missing and not text:
        return Document(Header(), ())
    try:
        return parse_document(text)
    except GraphFormatError as error:
        raise GraphFormatError(error.problem, error.line, error.column, str(file)) from None
