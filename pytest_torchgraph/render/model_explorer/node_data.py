"""What each node costs, as "node data" of model-explorer."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.model import Graph
from ..look.heat import HEAT_PAINTS, UNITS, Heat, HeatFigure
from .collection import with_ids
from .explorer_nodes import Json


def node_data(graphs: Sequence[Graph], figure: HeatFigure) -> Json:
    """The cost of the nodes of each graph and body, one run of it; what is not known is left out.

    Args:
        graphs: the graphs of one file, in the form of `collection`.
        figure: what is counted.

    Raises:
        CaptureError: where that is not known at the level of a graph.
    """
    costs = Heat.of(graphs, figure, times_run=False).costs
    stops = [(0, HEAT_PAINTS["least"].fill), (1, HEAT_PAINTS["most"].fill)]
    return {
        name: {
            "name": UNITS[figure][1],
            "results": {
                node.name: {"value": cost}
                for node in graph.nodes
                if (cost := costs.get(node)) is not None
            },
            "gradient": [{"stop": stop, "bgColor": color} for stop, color in stops],
        }
        for each in graphs
        for name, graph in with_ids(each)
    }
