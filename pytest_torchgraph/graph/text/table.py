"""A graph as a table of its nodes, as torch.fx prints one."""

from __future__ import annotations

from ..model import Graph
from .format import format_arg

WIDEST = 200
"""The widest padding of a column of `format_table`, in characters.

A longer cell stands out of its column: else one long list of arguments would pad every row.
"""


def format_table(graph: Graph) -> str:
    """The graph in the columns of `torch.fx.Graph.print_tabular`."""
    rows = [("opcode", "name", "target", "args", "kwargs")]
    for node in graph.nodes:
        target = node.target or (node.op if node.is_call else node.name)
        kwargs = ", ".join(f"{key}: {format_arg(arg)}" for key, arg in node.kwargs.items())
        args = ", ".join(format_arg(arg).replace("%", "") for arg in node.args)
        rows.append((node.kind, node.name, target, f"({args})", f"{{{kwargs.replace('%', '')}}}"))
    widths = [min(max(len(row[i]) for row in rows), WIDEST) for i in range(5)]
    rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
