"""What graphs cost as a table of their modules, as `FlopCounterMode.get_table` prints one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ops.levels import SAVING_LEVELS
from ..model import Graph, GraphKind
from ..text.table import aligned, right_aligned
from .by_module import by_module
from .flops import Flops, flops_of

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
    """

    module: str
    saved_bytes: int | None
    flops: dict[str, int] = field(default_factory=dict)
    nesting: int = 0

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
    nothing = 0 if all(graph.level in SAVING_LEVELS for graph in graphs) else None
    rows = {"": CostRow("", nothing)}
    below: defaultdict[str, set[str]] = defaultdict(set)
    direct: set[str] = set()
    for direction in dict.fromkeys(DIRECTIONS[graph.kind] for graph in graphs):
        part = [graph for graph in graphs if DIRECTIONS[graph.kind] == direction]
        for module, cost in by_module(part, depth).items():
            direct.add(module)
            around = ""
            for path in _paths(module):
                if path:
                    below[around].add(path)
                row = rows.setdefault(path, CostRow(path, nothing))
                row.flops[direction] = row.flops.get(direction, 0) + (cost.flops or 0)
                if row.saved_bytes is not None:
                    row.saved_bytes += cost.saved_bytes or 0
                around = path
    return list(_shown(rows[""], rows, below, direct))


def _paths(module: str) -> list[str]:
    """The paths of a module and of all that are around it, the outermost first."""
    parts = module.split(".") if module else []
    return [".".join(parts[:end]) for end in range(len(parts) + 1)]


def _shown(
    row: CostRow,
    rows: Mapping[str, CostRow],
    below: Mapping[str, set[str]],
    direct: set[str],
    nesting: int = 0,
) -> Iterator[CostRow]:
    """The row of a module and those of the modules in it."""
    inside = below.get(row.module, set())
    if not row.module or row.module in direct or len(inside) != 1:
        row.nesting = nesting
        nesting += 1
        yield row
    for path in sorted(inside, key=_in_order):
        yield from _shown(rows[path], rows, below, direct, nesting)


def _in_order(path: str) -> tuple[int, str]:
    """Sorts `layer.2` before `layer.10`."""
    name = path.rpartition(".")[2]
    return (int(name), "") if name.isdecimal() else (-1, name)


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
    unknown = Flops()
    for graph in graphs:
        unknown.add(flops_of(graph))
    if not unknown.unknown:
        return text
    return (
        f"{text}\nnot counted, because torch has no formula: {', '.join(sorted(unknown.unknown))}"
    )
