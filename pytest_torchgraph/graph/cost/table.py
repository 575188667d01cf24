"""What graphs cost as a table of their modules, as `FlopCounterMode.get_table` prints one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ops.levels import SAVING_LEVELS
from ..model import Graph, GraphKind
from ..text.table import aligned, right_aligned
from .by_module import by_module
from .flops import flops_of

DIRECTIONS: Mapping[GraphKind, str] = {
    "forward": "forward",
    "inference": "forward",
    "backward": "backward",
    "joint": "joint",
}
"""The direction in which the graphs of a kind run."""
WHOLE = "(all)"
"""What the row of the whole step is called."""


@dataclass(slots=True)
class CostRow:
    """What a module costs with all below it.

    Attributes:
        module: its path, "" for the whole step.
        saved_bytes: the bytes that it keeps for the backward; None where that is not known.
        flops: its floating-point operations, by direction.
        nesting: how many rows are around it.
        has_ops: whether it is the innermost module of an op that costs something.
    """

    module: str
    saved_bytes: int | None
    flops: dict[str, int] = field(default_factory=dict)
    nesting: int = 0
    has_ops: bool = False

    @property
    def total(self) -> int:
        """Its floating-point operations in all directions."""
        return sum(self.flops.values())


def cost_rows(graphs: Sequence[Graph], depth: int | None = None) -> list[CostRow]:
    """What the modules of graphs cost: the whole first, each module before those below it.

    A module that only holds another one has no row.

    Args:
        graphs: the graphs, which count as often as they ran.
        depth: how many parts the path of a module has at most; None for any number.

    Raises:
        CaptureError: see `Graph.flops`; ops without a formula are left out.
        ValueError: for a depth that is none.
    """
    return list(_shown(_rows(graphs, depth)))


def _rows(graphs: Sequence[Graph], depth: int | None) -> dict[str, CostRow]:
    """The rows of all modules, by their paths."""
    nothing = 0 if all(graph.level in SAVING_LEVELS for graph in graphs) else None
    rows = {"": CostRow("", nothing)}
    for direction in dict.fromkeys(DIRECTIONS[graph.kind] for graph in graphs):
        part = [graph for graph in graphs if DIRECTIONS[graph.kind] == direction]
        for module, cost in by_module(part, depth).items():
            for path in _paths(module):
                row = rows.setdefault(path, CostRow(path, nothing))
                row.flops[direction] = row.flops.get(direction, 0) + (cost.flops or 0)
                if row.saved_bytes is not None:
                    row.saved_bytes += cost.saved_bytes or 0
            row.has_ops = True
    return rows


def _below(paths: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The modules directly in each, in order."""
    below: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(paths, key=_in_order):
        if path:
            below[path.rpartition(".")[0]].append(path)
    return below


def _paths(module: str) -> list[str]:
    """The paths of a module and of all that are around it, the outermost first."""
    parts = module.split(".") if module else []
    return [".".join(parts[:end]) for end in range(len(parts) + 1)]


def _shown(rows: Mapping[str, CostRow]) -> Iterator[CostRow]:
    """The rows that are shown, each with how many of these are around it."""
    below = _below(rows)
    todo = [("", 0)]
    while todo:
        path, nesting = todo.pop()
        inside = below.get(path, ())
        if not path or rows[path].has_ops or len(inside) != 1:
            rows[path].nesting = nesting
            nesting += 1
            yield rows[path]
        todo += [(each, nesting) for each in reversed(inside)]


def _in_order(path: str) -> tuple[int, str]:
    """Sorts `layer.2` before `layer.10`."""
    name = path.rpartition(".")[2]
    return (int(name), "") if name.isdecimal() else (-1, name)


def changed_costs(before: Sequence[Graph], after: Sequence[Graph]) -> list[tuple[CostRow, CostRow]]:
    """What the modules that cost another amount cost before and after, the whole first.

    A module has no row where the whole change is that of a single one in it.

    Raises:
        CaptureError: see `Graph.flops`.
    """
    old, new = _rows(before, None), _rows(after, None)
    pairs = {path: (_row(old, path), _row(new, path)) for path in old.keys() | new.keys()}
    changes = {path: _change(*pair) for path, pair in pairs.items()}
    changes = {path: change for path, change in changes.items() if any(change) or not path}
    below = _below(changes)
    return [
        pairs[path]
        for path in sorted(changes, key=lambda path: [*map(_in_order, _paths(path))])
        if not path or [changes[each] for each in below.get(path, ())] != [changes[path]]
    ]


def _row(rows: Mapping[str, CostRow], path: str) -> CostRow:
    """The row of a module; one of nothing where it has no ops."""
    return rows.get(path) or CostRow(path, None if rows[""].saved_bytes is None else 0)


def _change(before: CostRow, after: CostRow) -> tuple[int, int]:
    """The change of the FLOPs and of the saved bytes, as far as they are known."""
    saved = (after.saved_bytes or 0) - (before.saved_bytes or 0)
    return after.total - before.total, saved


def format_cost_table(graphs: Sequence[Graph], depth: int | None = None) -> str:
    """See `Capture.cost_table`."""
    rows = cost_rows(graphs, depth)
    directions = list(rows[0].flops)
    columns = [["module", *(f"{'  ' * row.nesting}{row.module or WHOLE}" for row in rows)]]
    if len(directions) > 1:
        columns += [
            [f"{direction} FLOPs", *(f"{row.flops.get(direction, 0):,}" for row in rows)]
            for direction in directions
        ]
    whole = rows[0].total
    columns.append(["FLOPs", *(f"{row.total:,}" for row in rows)])
    columns.append(["%", *(f"{row.total / (whole or 1):.1%}".removesuffix("%") for row in rows)])
    if rows[0].saved_bytes is not None:
        columns.append(["saved bytes", *(f"{row.saved_bytes or 0:,}" for row in rows)])
    columns[1:] = map(right_aligned, columns[1:])
    text = aligned([list(cells) for cells in zip(*columns, strict=True)])
    note = not_counted(graphs)
    return f"{text}\n{note}" if note else text


def not_counted(graphs: Iterable[Graph]) -> str:
    """The ops whose FLOPs are in no table, in words; "" where there are none.

    Raises:
        CaptureError: see `Graph.flops`.
    """
    unknown: set[str] = set()
    for graph in graphs:
        unknown.update(flops_of(graph).unknown)
    names = ", ".join(sorted(unknown))
    return f"not counted, because torch has no formula: {names}" if names else ""
