"""A graph as a table of its nodes, like `torch.fx.Graph.print_tabular`."""

from __future__ import annotations

from ..model import Graph
from .format import format_arg

WIDEST = 200
"""Maximum padded width of a column of `format_table`, in characters.

A longer cell overflows the column. Otherwise one long argument list would pad every row.
"""


def format_table(graph: Graph, cost: bool = False) -> str:
    """Return the columns of `torch.fx.Graph.print_tabular`, and optionally the cost of each node.

    Args:
        graph: the graph.
        cost: add columns of costs; see `Graph.to_table`.

    Raises:
        CaptureError: if costs of a graph of torch functions are requested.
    """
    rows = [["opcode", "name", "target", "args", "kwargs"]]
    for node in graph.nodes:
        target = node.target or (node.op if node.is_call else node.name)
        kwargs = ", ".join(f"{key}: {format_arg(arg)}" for key, arg in node.kwargs.items())
        args = ", ".join(format_arg(arg).replace("%", "") for arg in node.args)
        rows.append([node.kind, node.name, target, f"({args})", f"{{{kwargs.replace('%', '')}}}"])
    if cost:
        for row, cells in zip(rows, zip(*_cost_columns(graph), strict=True), strict=True):
            row[3:3] = cells
    return aligned(rows)


def aligned(rows: list[list[str]]) -> str:
    """Align rows of cells in columns, with a rule below the first row."""
    widths = [min(max(map(len, column)), WIDEST) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (rows[0], rule, *rows[1:])
    )


def right_aligned(cells: list[str]) -> list[str]:
    """Right-align the cells of a column of numbers."""
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _cost_columns(graph: Graph) -> list[list[str]]:
    """Return the columns of the costs that are known at the graph's level, with their titles."""
    from ..cost import flops_by_node, saved_by_node

    figures = {"FLOPs": flops_by_node(graph), "saved bytes": saved_by_node(graph)}
    return [
        right_aligned([title, *(_format_figure(columns.get(node.name, 0)) for node in graph.nodes)])
        for title, columns in figures.items()
        if columns is not None
    ]


def _format_figure(value: int | None) -> str:
    """Format a cost: "?" for `None`, and "" for 0, so that other costs stand out."""
    return "?" if value is None else f"{value:,}" if value else ""
