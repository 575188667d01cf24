"""Costs of graphs by module, and as a table like `FlopCounterMode.get_table`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ops.matching import SAVING_LEVELS
from ...words import grouped
from ..model import Graph, GraphKind
from ..select import ancestors, path_prefix
from ..step import joined
from ..text import aligned, right_aligned
from .cost import Cost
from .flops import flops_of
from .recomputed import Recomputed
from .storages import kept


def by_module(
    graphs: Sequence[Graph],
    depth: int | None = None,
    *,
    times_run: bool = True,
    recomputed: Sequence[Recomputed] = (),
) -> dict[str, Cost]:
    """Return the costs of the graphs' ops by module path; see `Capture.by_module`."""
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ValueError(
            f"depth={depth!r} is not a valid module depth: pass an int of at least 0, or None"
        )
    flops: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    recomputed_flops: Counter[str] = Counter()
    saving_is_known = all(graph.level in SAVING_LEVELS for graph in graphs)
    # A divided step is read as one, unless each graph is to count for itself.
    for graph in joined(graphs).graphs if times_run else graphs:
        times = graph.runs if times_run else 1
        for module, count in flops_of(graph).by_module.items():
            flops[path_prefix(module, depth)] += count * times
    for storage in kept(graphs, times_run=times_run) if saving_is_known else ():
        saved[path_prefix(storage.node.module, depth)] += storage.bytes
    for entry in recomputed:
        if entry.counts and entry.cost.flops:
            recomputed_flops[path_prefix(entry.original.module, depth)] += entry.cost.flops
    return {
        path: Cost(
            flops[path],
            saved[path] if saving_is_known else None,
            recomputed_flops[path] if recomputed_flops else None,
        )
        for path in sorted(flops.keys() | saved.keys() | recomputed_flops.keys())
    }


DIRECTIONS: Mapping[GraphKind, str] = {
    "forward": "forward",
    "inference": "forward",
    "backward": "backward",
    "joint": "joint",
    "update": "update",
}
"""Direction in which the graphs of a kind run."""
WHOLE = "(all)"
"""Row title of the whole step."""


@dataclass(slots=True)
class CostRow:
    """Cost of a module, including its submodules.

    Attributes:
        module: path of the module, "" for the whole step.
        saved_bytes: bytes saved for the backward; `None` if unknown.
        flops: floating-point operations, by direction.
        recomputed: FLOPs of the backward that recompute forward ops.
        nesting: number of enclosing rows.
        has_ops: True if the module is the innermost module of an op with a cost.
    """

    module: str
    saved_bytes: int | None
    flops: dict[str, int] = field(default_factory=dict)
    recomputed: int = 0
    nesting: int = 0
    has_ops: bool = False

    @property
    def total(self) -> int:
        """Floating-point operations in all directions."""
        return sum(self.flops.values())


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of the modules of graphs.

    Attributes:
        rows: the row of the whole step, then a row for each module before its submodules. A module
            has no row if it has only one submodule and no ops of its own.
        note: ops that are not counted because torch has no formula for them; "" if all are counted.
    """

    rows: Sequence[CostRow]
    note: str

    @property
    def figures(self) -> list[tuple[str, list[int]]]:
        """Columns, each with a title and a figure for each row."""
        total_row = self.rows[0]
        # A single direction would repeat the column of all FLOPs.
        directions = list(total_row.flops) if len(total_row.flops) > 1 else []
        columns = [
            (f"{direction} FLOPs", [row.flops.get(direction, 0) for row in self.rows])
            for direction in directions
        ]
        columns.append(("FLOPs", [row.total for row in self.rows]))
        if total_row.recomputed:
            columns.append(("recomputed FLOPs", [row.recomputed for row in self.rows]))
        if total_row.saved_bytes is not None:
            columns.append(("saved bytes", [row.saved_bytes or 0 for row in self.rows]))
        return columns


def cost_table(
    graphs: Sequence[Graph],
    costs: Mapping[str, Cost],
    depth: int | None = None,
) -> CostTable:
    """Return the costs of the modules of graphs.

    Args:
        graphs: the graphs; each graph counts as often as it ran.
        costs: result of `by_module` for the graphs at this depth.
        depth: maximum number of parts of a module path; `None` for no limit.

    Raises:
        CaptureError: see `Graph.flops`.
    """
    rows, unknown = _make_rows(graphs, costs, depth)
    names = ", ".join(sorted(unknown))
    note = f"not counted, because torch has no formula: {names}" if names else ""
    return CostTable(list(_iter_visible_rows(rows)), note)


def _make_rows(
    graphs: Sequence[Graph], costs: Mapping[str, Cost], depth: int | None
) -> tuple[dict[str, CostRow], set[str]]:
    """Return the rows of all modules by path, and the ops without a formula."""
    saving_is_known = all(graph.level in SAVING_LEVELS for graph in graphs)
    rows: dict[str, CostRow] = {}
    unknown: set[str] = set()

    def enclosing_rows(module: str) -> list[CostRow]:
        """Return the rows around a module, outermost first, and add those that are missing."""
        paths = _enclosing_paths(module)[: None if depth is None else depth + 1]
        return [
            rows.setdefault(path, CostRow(path, 0 if saving_is_known else None)) for path in paths
        ]

    enclosing_rows("")  # without any costs, the whole step still has a row
    for module, cost in costs.items():
        for row in (enclosing := enclosing_rows(module)):
            if row.saved_bytes is not None:
                row.saved_bytes += cost.saved_bytes or 0
            row.recomputed += cost.recomputed_flops or 0
        enclosing[-1].has_ops = True
    # `costs` has the sum over all directions, so the FLOPs are counted again by direction.
    for graph in joined(graphs).graphs:
        flops = flops_of(graph)
        unknown.update(flops.unknown)
        direction = DIRECTIONS[graph.kind]
        for module, count in flops.by_module.items():
            for row in enclosing_rows(module):
                row.flops[direction] = row.flops.get(direction, 0) + count * graph.runs
    return rows, unknown


def _enclosing_paths(module: str) -> list[str]:
    """Return "" for the whole step, and the paths down to the module, outermost first."""
    return ["", *ancestors(module)]


def _iter_visible_rows(rows: Mapping[str, CostRow]) -> Iterator[CostRow]:
    """Yield the visible rows in order, and set their `nesting`."""
    in_order = sorted(rows, key=_path_sort_key)
    submodules = grouped((path.rpartition(".")[0], path) for path in in_order if path)
    todo = [("", 0)]
    while todo:
        path, nesting = todo.pop()
        inside = submodules.get(path, ())
        if not path or rows[path].has_ops or len(inside) != 1:
            rows[path].nesting = nesting
            nesting += 1
            yield rows[path]
        todo += [(submodule, nesting) for submodule in reversed(inside)]  # the last is taken first


def _path_sort_key(path: str) -> tuple[int, str]:
    """Return a sort key that puts `layer.2` before `layer.10`."""
    name = path.rpartition(".")[2]
    return (int(name), "") if name.isdecimal() else (-1, name)


def format_cost_table(
    graphs: Sequence[Graph],
    costs: Mapping[str, Cost],
    depth: int | None = None,
) -> str:
    """Format a cost table; see `Capture.cost_table`, and `cost_table` for the arguments."""
    table = cost_table(graphs, costs, depth)
    rows = table.rows
    columns = [["module", *(f"{'  ' * row.nesting}{row.module or WHOLE}" for row in rows)]]
    total_flops = rows[0].total
    for title, figures in table.figures:
        columns.append([title, *(f"{figure:,}" for figure in figures)])
        if title == "FLOPs":
            # The total may be 0.
            shares = (f"{row.total / (total_flops or 1):.1%}".removesuffix("%") for row in rows)
            columns.append(["%", *shares])
    columns[1:] = map(right_aligned, columns[1:])
    text = aligned([list(cells) for cells in zip(*columns, strict=True)])
    return f"{text}\n{table.note}" if table.note else text
