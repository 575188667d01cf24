"""The heat of a box: what its ops cost, as a colour and in words.

The colours are purple, the darker the costlier, so that they are told apart in grey and by people
with any colour vision deficiency, and no other meaning in a drawing has that hue. A step of the
scale is a share of all that is drawn, whatever else is: one op more recolours no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ...graph.census import runs
from ...graph.cost.by_node import flops_by_node, saved_by_node
from ...graph.cost.saved import need_saved
from ...graph.model import Graph, Node
from ...words import amount, counted
from .op_categories import Paint

HeatFigure = Literal["flops", "saved_bytes"]
"""What a heat can be of."""
UNITS: dict[HeatFigure, tuple[str, str]] = {
    "flops": ("FLOP", "floating-point operations"),
    "saved_bytes": ("B", "bytes kept for the backward"),
}
"""The unit of each figure, and what it is in words."""
BORDER = "#54478C"
HEAT_PAINTS: dict[str, Paint] = {
    "most": Paint(BORDER, "#8270B8"),
    "more": Paint(BORDER, "#9F92CC"),
    "medium": Paint(BORDER, "#BDB4DE"),
    "less": Paint(BORDER, "#D9D4EC"),
    "least": Paint(BORDER, "#F1EEF8"),
    "none": Paint("#A6A6A6", "#FFFFFF"),
    "unknown": Paint("#A6A6A6", "#FEFEFE"),
}
"""The paint of each step of the scale, in the order of the legend."""
SHARES: dict[str, float] = {"most": 0.3, "more": 0.1, "medium": 0.03, "less": 0.01, "least": 0.0}
"""The smallest share of a step."""
WORDS = {
    **{step: f"{share:.0%} and more" for step, share in SHARES.items() if share},
    **{"least": "under 1%", "none": "nothing", "unknown": "not known"},
}
"""The words of each step in the legend."""


@dataclass(frozen=True)
class Heat:
    """What the ops of a drawing cost.

    Attributes:
        figure: what is counted.
        costs: of each node, None where it is not known; a node that is not there costs nothing.
        total: the sum of those that are known.
    """

    figure: HeatFigure
    costs: Mapping[Node, int | None]
    total: int

    @classmethod
    def of(cls, graphs: Iterable[Graph], figure: HeatFigure, *, times_run: bool) -> Heat:
        """The heat of graphs that are drawn together.

        Args:
            graphs: the graphs.
            figure: what is counted.
            times_run: whether one that ran several times counts as often.

        Raises:
            CaptureError: where the figure is not known at the level of a graph.
            ValueError: for an unknown figure.
        """
        if figure not in UNITS:
            known = " or ".join(map(repr, get_args(HeatFigure)))
            raise ValueError(f"heat={figure!r} is no figure of cost: use {known}")
        costs: dict[Node, int | None] = {}
        for graph in graphs:
            _add(graph, figure, graph.runs if times_run else 1, costs)
        return cls(figure, costs, sum(value or 0 for value in costs.values()))

    def known(self, nodes: Iterable[Node]) -> int:
        """What is known of the cost of nodes."""
        return sum(self.costs.get(node) or 0 for node in nodes)

    def step(self, nodes: Iterable[Node]) -> str:
        """The step of the scale for a box of these nodes, a key of `HEAT_PAINTS`."""
        nodes = list(nodes)
        value = self.known(nodes)
        if not value:
            return "unknown" if self._unknown(nodes) else "none"
        share = value / self.total
        return next(step for step, least in SHARES.items() if share >= least)

    def line(self, nodes: Iterable[Node]) -> str:
        """What nodes cost in words, "" for nothing: `1.2 MFLOP, 12.3%`."""
        nodes = list(nodes)
        unit = UNITS[self.figure][0]
        value, unknown = self.known(nodes), self._unknown(nodes)
        words = self.words(value)
        if unknown:
            more = f"{unit} of {counted(unknown, 'op')} not known"
            return f"{words}; {more}" if words else more
        return words

    def words(self, value: int) -> str:
        """An amount and its share of all, "" for nothing."""
        if not value:
            return ""
        return f"{amount(value, UNITS[self.figure][0])}, {value / self.total:.1%}"

    def title(self) -> str:
        """The line of the title that says what the colours show."""
        unit, what = UNITS[self.figure]
        all_ = amount(self.total, unit)
        unknown = sum(value is None for value in self.costs.values())
        more = f"; those of {counted(unknown, 'op')} are not known" if unknown else ""
        return f"colour: share of all {what}, {all_}{more}"

    def _unknown(self, nodes: Iterable[Node]) -> int:
        return sum(self.costs.get(node, 0) is None for node in nodes)


def _add(graph: Graph, figure: HeatFigure, times: int, costs: dict[Node, int | None]) -> None:
    """Add what the nodes of a graph cost; the cost of a body is at the nodes in it."""
    if figure == "saved_bytes":
        need_saved((graph,))
        for name, value in (saved_by_node(graph) or {}).items():
            _count(graph.by_name[name], value, times, costs)
        return
    for name, value in flops_by_node(graph).items():
        node = graph.by_name[name]
        called = runs(graph, node) if value else []
        inside: dict[Node, int | None] = {}
        for run in called:
            _add(run.body, figure, times * run.counted, inside)
        if any(inside.values()):
            for each, count in inside.items():
                _count(each, count, 1, costs)
        else:  # of a kernel that has bodies, as an attention, the op itself works
            _count(node, value, times, costs)


def _count(node: Node, value: int | None, times: int, costs: dict[Node, int | None]) -> None:
    known = costs.get(node, 0)
    if value is None or known is None:
        costs[node] = None
    elif value:
        costs[node] = known + value * times
