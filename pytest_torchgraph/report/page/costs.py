"""What captures and comparisons cost, by module, as plain data for the page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import CaptureError
from ...graph.cost.cost import Cost
from ...graph.model import Graph
from ...words import amount

MOST = 24
"""How many modules are listed at most: each capture of a run has its table in the page."""

Data = dict[str, Any]
"""A table: `about`, its summary; the `titles` of its columns of figures; `rows`, each the path of a
module, how many rows are around it, and the figures; `more`, how many modules it leaves out;
`note`, which ops it does not count."""


def cost_data(
    graphs: Sequence[Graph], by_module: Callable[[int | None], Mapping[str, Cost]]
) -> Data | None:
    """What the graphs of a capture cost, the modules as deep as there is room.

    Args:
        graphs: its program.
        by_module: its method of this name.

    Returns:
        the table, or None where the cost is not known: of graphs of torch functions, where a size
        is a symbol, and where torch, whose formulas count FLOPs, was not imported by the test.
    """
    if not graphs or "torch" not in sys.modules:
        return None
    from ...graph.cost.table import cost_table

    try:
        table = cost_table(graphs, by_module(None))
        rows = every = table.rows
        depth = max(row.module.count(".") for row in every)
        while len(rows) > MOST and depth:
            rows = cost_table(graphs, by_module(depth), depth).rows
            depth -= 1
    except CaptureError:
        return None
    whole = every[0]
    directions = list(whole.flops) if len(whole.flops) > 1 else []
    about = [amount(whole.total, "FLOP")]
    titles = [*(f"{each} FLOPs" for each in directions), "FLOPs"]
    if whole.saved_bytes is not None:
        about.append(f"{amount(whole.saved_bytes, 'B')} kept for the backward")
        titles.append("saved bytes")
    listed = []
    for row in rows[:MOST]:
        figures = [*(row.flops.get(each, 0) for each in directions), row.total, row.saved_bytes]
        listed.append([row.module, row.nesting, *figures[: len(titles)]])
    return _table(about, titles, listed, len(every), table.note)


def changed_cost_data(before: Sequence[Graph], after: Sequence[Graph]) -> Data | None:
    """What the modules that cost another amount cost before and after; None as in `cost_data`."""
    if "torch" not in sys.modules:
        return None
    from ...graph.cost.table import changed_costs

    try:
        pairs, note = changed_costs(before, after)
    except CaptureError:
        return None
    old, new = pairs[0]
    about = [amount(new.total - old.total, "FLOP", signed=True)]
    titles = ["FLOPs before", "FLOPs after"]
    if old.saved_bytes is not None and new.saved_bytes is not None:
        kept = new.saved_bytes - old.saved_bytes
        about.append(f"{amount(kept, 'B', signed=True)} kept for the backward")
        titles += ["saved bytes before", "saved bytes after"]
    listed = []
    for old, new in pairs[:MOST]:
        figures = [old.total, new.total, old.saved_bytes, new.saved_bytes]
        listed.append([new.module, int(new.module != ""), *figures[: len(titles)]])
    return _table(about, titles, listed, len(pairs), note)


def _table(
    about: list[str], titles: list[str], rows: list[list[Any]], count: int, note: str
) -> Data:
    if note:
        about[0] += " and what is not counted"
    more = count - len(rows)
    return {
        "about": ", ".join(about),
        "titles": titles,
        "rows": rows,
        "more": more,
        "note": note,
    }
