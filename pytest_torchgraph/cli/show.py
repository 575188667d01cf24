"""`show FILE`: print graphs of a file as text or in another form, their costs, or collectives."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TorchGraphError, only_counts_error
from ..words import format_ranks
from .formats import (
    BREAK,
    EXIT_OK,
    add_format,
    add_rank,
    add_truncated,
    named,
    of_rank,
    print_json,
    program_of,
    read_any_document,
    select_graphs,
)

if TYPE_CHECKING:
    from ..api.result import Capture
    from ..graph.cost import Cost
    from ..graph.model import Graph
    from ..graph.program import Program

STAGES = ("dynamo", "aot", "post_grad")
"""Stages of the graphs in a log."""


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser("show", help="print the graphs of a file")
    parser.add_argument("file", type=Path, help="a .tgraph file, or a file of torch's")
    parser.add_argument(
        "--stage",
        choices=STAGES,
        help="print the graphs of a log at this stage; without it, print a glance at the log",
    )
    parser.add_argument("--graph", metavar="NAME", help="print only this graph")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--table", action="store_true", help="print a table of nodes, as torch.fx does"
    )
    form.add_argument("--ops", action="store_true", help="print op counts")
    form.add_argument(
        "--flat",
        action="store_true",
        help="print one line per node, with repeated modules unfolded",
    )
    form.add_argument(
        "--collectives",
        action="store_true",
        help="print the collectives in order: kind, group, bytes, module",
    )
    add_format(form, ("text", "json"))
    parser.add_argument(
        "--cost",
        action="store_true",
        help="print FLOPs and bytes saved for backward per module, or with --table per node; "
        "imports torch for its FLOP formulas",
    )
    parser.add_argument(
        "--size",
        metavar="SYMBOL=N",
        action="append",
        default=[],
        help="value of a symbolic size for --cost, such as s0=8; repeatable",
    )
    add_rank(parser)
    add_truncated(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the graphs.

    Raises:
        TorchGraphError: for a graph missing from the file; for a table, costs or collectives of a
            file with only op counts; if requested costs are unknown; and for an invalid size of a
            symbol.
    """
    from ..graph.text import with_runs

    if options.cost and (options.ops or options.flat or options.collectives):
        raise TorchGraphError(
            "--cost accepts only --table: leave out --ops, --flat and --collectives"
        )
    is_json = options.format == "json"
    # True without an option that selects a part of the file, or a form for single graphs.
    as_text = not (options.table or options.cost or options.ops or options.graph or options.size)
    captures = _captures_of_log(options)
    if captures is not None and not options.stage:
        # Any option about graphs chooses them over the glance.
        if as_text and not (options.flat or options.collectives):
            from .glance import data, glance

            if is_json:
                print_json({"processes": [*map(data, captures)]})
            else:
                print(glance(captures))
            return EXIT_OK
        options.stage = "aot"
    if captures is None:
        if options.stage:
            raise TorchGraphError("--stage applies to logs of torch: leave out --stage")
        stored = read_any_document(options.file)
    else:
        stored = program_of([capture.at(options.stage) for capture in captures])
    if is_json:
        header = stored.header
        print_json(
            {"torch": header.torch, "via": header.via, "captures": [*_ranks_data(stored, options)]}
        )
        return EXIT_OK
    if options.rank is None and as_text and stored.sections:
        if options.collectives:
            print(_collectives_of_ranks(stored, options.file))
        else:
            print(_text_of_ranks(stored, options.file, flat=options.flat), end="")
        return EXIT_OK
    document = of_rank(stored, options.rank, options.file)
    graphs = select_graphs(document, options.graph, options.file)
    if document.counts and not document.graphs:
        if options.table or options.cost or options.collectives:
            raise only_counts_error(options.file)
        _print_counts(
            [
                (with_runs(name, document.runs.get(name, 1)), counts)
                for name, counts in document.counts
                if options.graph in (None, name)
            ]
        )
        return EXIT_OK
    if options.size:
        graphs = _with_sizes(graphs, options.size)
    _print_graphs(graphs, document, options)
    return EXIT_OK


def _print_graphs(graphs: Sequence[Graph], document: Program, options: argparse.Namespace) -> None:
    """Print graphs in the chosen form.

    Args:
        graphs: the selected graphs.
        document: the program that they are from.
        options: the options; without one for a form, the graphs are printed as in the file.

    Raises:
        CaptureError: if the graphs lack the costs or collectives.
    """
    from ..graph.text import format_document

    if options.table:
        tables = [f"{_heading(graph)}\n{graph.to_table(options.cost)}" for graph in graphs]
        print("\n\n".join(tables))
    elif options.collectives:
        print(_collectives(graphs))
    elif options.cost:
        from ..graph.cost import format_cost_table  # only here, because it imports torch

        print(format_cost_table(graphs, _costs(graphs)))
    elif options.ops:
        _print_counts([(_heading(graph), graph.op_counts) for graph in graphs])
    else:
        header, fold = document.header, document.folded and not options.flat
        print(format_document(graphs, header, header.detail, fold=fold), end="")


def _ranks_data(stored: Program, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the selected graphs of each group of equal ranks, as plain data."""
    from ..graph.step import calls_of, needs_links

    # One rank, or a single capture, is a group without ranks.
    if options.rank is not None or not stored.sections:
        stored = of_rank(stored, options.rank, options.file)
    for ranks, program in stored.sections or (((), stored),):
        if options.cost and program.counts:
            raise only_counts_error(options.file)
        graphs = select_graphs(program, options.graph, options.file)
        if options.size:
            graphs = _with_sizes(graphs, options.size)
        calls = calls_of(program.graphs) or ()
        cuts = [call.cut.graph_break for call, _ in calls if call.cut and call.cut.direct]
        costs = _costs(graphs) if options.cost else {}
        yield {
            "ranks": ranks,
            "graphs": [_graph_data(graph, program) for graph in graphs]
            or [
                {"name": name, "runs": program.runs.get(name), "ops": counts, "nodes": None}
                for name, counts in program.counts
                if options.graph in (None, name)
            ],
            # Without links between the graphs of a divided step, its breaks are unknown.
            "graph_breaks": None
            if needs_links(program.graphs) and not calls
            else [named(cut, BREAK) for cut in dict.fromkeys(cuts) if cut],
            "costs": {module: asdict(cost) for module, cost in costs.items()},
        }


def _graph_data(graph: Graph, program: Program) -> dict[str, Any]:
    """Return a graph and its subgraphs as plain data, with the run counts in the program."""
    from ..graph.text import format_node, format_result

    nodes = [
        {
            **named(node, ("name", "kind", "op", "module")),
            "inputs": node.refs,
            "result": format_result(node.result),
            "text": format_node(node),
        }
        for node in graph.nodes
    ]
    return {
        **named(graph, ("name", "kind", "level", "eager")),
        "runs": program.runs.get(graph.name),
        "ops": graph.op_counts,
        "saved": [ref.name for ref in graph.saved],
        "nodes": nodes,
        "subgraphs": [_graph_data(body, program) for body in graph.subgraphs],
    }


def _captures_of_log(options: argparse.Namespace) -> Sequence[Capture] | None:
    """Return the processes in a log, or in a directory of logs; `None` for another file.

    With `--rank`, return only that process, and clear the option.
    """
    from ..api.torch_files import captures_in, kind_of

    if not options.file.is_dir() and kind_of(options.file) != "log":
        return None
    captures = captures_in(options.file, "allow" if options.allow_truncated else "refuse")
    if captures is None:
        raise TorchGraphError(f"no log of torch in {options.file}")
    if options.rank is None:
        return captures
    selected = [capture for capture in captures if capture.rank == options.rank]
    options.rank = None  # the program of one process has no ranks to choose from
    if not selected:
        ranks = [capture.rank for capture in captures if capture.rank is not None]
        raise TorchGraphError(f"{options.file} has {format_ranks(ranks) if ranks else 'no rank'}")
    return selected


def _text_of_ranks(document: Program, file: Path, *, flat: bool) -> str:
    """Return the text of all ranks' graphs, as in the file, or with one line per node."""
    from ..graph.text import format_sections, read_text

    if not document.graphs:  # only op counts
        return read_text(file)
    sections = [(ranks, rank_program.graphs) for ranks, rank_program in document.sections]
    header, fold = document.header, document.folded and not flat
    return format_sections(document.mesh, sections, header, header.detail, fold=fold)


def _with_sizes(graphs: Sequence[Graph], assignments: Sequence[str]) -> tuple[Graph, ...]:
    """Return the graphs with values for symbolic sizes.

    Raises:
        TorchGraphError: for an invalid size.
    """
    from ..graph.sizes import with_sizes

    sizes = {}
    for assignment in assignments:
        name, _, number = assignment.partition("=")
        if not number.isdecimal():
            raise TorchGraphError(f"--size={assignment}: expected SYMBOL=N, such as --size=s0=8")
        sizes[name] = int(number)
    try:
        return with_sizes(graphs, sizes)
    except ValueError as error:
        raise TorchGraphError(str(error)) from error


def _costs(graphs: Sequence[Graph]) -> dict[str, Cost]:
    """Return the cost of each module, for all graphs together.

    Raises:
        CaptureError: if the costs are unknown.
    """
    from ..graph.cost import by_module, recomputed_if_known, with_savers

    return by_module(graphs, recomputed=recomputed_if_known(with_savers(graphs)))


def _collectives(graphs: Sequence[Graph]) -> str:
    """Return the table of collectives in the graphs of the file.

    Raises:
        CaptureError: if the graphs do not record their collectives.
    """
    from ..graph.collectives import collectives_of, format_collectives

    return format_collectives(
        [collective for graph in graphs for collective in collectives_of((graph,)) * graph.runs]
    )


def _collectives_of_ranks(document: Program, file: Path) -> str:
    """Return the collectives of each class of equal ranks, below a line with the ranks.

    Raises:
        TorchGraphError: for a file with only op counts.
    """
    if not document.graphs:
        raise only_counts_error(file)
    return "\n\n".join(
        f"{format_ranks(ranks)}\n{_collectives(rank_program.graphs)}"
        for ranks, rank_program in document.sections
    )


def _heading(graph: Graph) -> str:
    """Return the name of a graph, with its run count if it ran eagerly."""
    from ..graph.text import with_runs

    return with_runs(graph.name, graph.runs if graph.eager else 1)


def _print_counts(graphs: Sequence[tuple[str, dict[str, int]]]) -> None:
    """Print the heading and the op counts of each graph, largest count first."""
    for name, counts in graphs:
        print(name)
        for op, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count:6} {op}")
