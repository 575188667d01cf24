"""`render FILE OUT`: draw the graphs, or with `--against=OLD` the difference of two files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import TorchGraphError, only_counts_error
from .formats import EXIT_OK, add_rank, read_document, select_graphs


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser("render", help="draw graphs to a .svg, .png, .pdf or .dot file")
    parser.add_argument("file", type=Path, help="a .tgraph file")
    parser.add_argument("out", type=Path, help="the picture to write")
    parser.add_argument("--graph", metavar="NAME", help="draw only this graph")
    parser.add_argument(
        "--against", metavar="OLD", type=Path, help="draw the differences from this file"
    )
    parser.add_argument(
        "--heat",
        choices=("flops", "saved_bytes"),
        help="colour boxes by their share of the cost. The choice flops imports torch, for its "
        "FLOP formulas",
    )
    add_rank(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw the graphs or the difference, and print the path of the picture.

    Raises:
        TorchGraphError: if there is no graph or no difference to draw, and for a heat map of a
            difference or of unknown costs.
    """
    from ..graph.diff import diff_graphs
    from ..render.output import SUFFIXES, format_of
    from ..render.whole import render

    if format_of(options.out) is None:
        raise TorchGraphError(f"cannot draw {options.out}: the suffix must be one of {SUFFIXES}")
    document = read_document(options.file, rank=options.rank)
    if options.against is not None:
        if options.heat:
            raise TorchGraphError(
                "--heat applies to graphs, not to a diff: leave out --heat or --against"
            )
        old = read_document(options.against, rank=options.rank)
        difference = diff_graphs(old.graphs, document.graphs)
        if not difference:
            raise TorchGraphError(
                f"nothing to draw: {options.against} and {options.file} have equal graphs"
            )
        print(render(difference, options.out))
        return EXIT_OK
    graphs = select_graphs(document, options.graph, options.file)
    if not graphs:
        raise only_counts_error(options.file)
    print(render(graphs[0] if len(graphs) == 1 else graphs, options.out, heat=options.heat))
    return EXIT_OK
