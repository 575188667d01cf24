"""The marker `torchgraph`: its name and its arguments.

This module imports nothing, because every pytest run registers the marker and its ini options;
what they mean is in `limits`.
"""

from __future__ import annotations

MARKER = "torchgraph"
"""The marker's name, and the beginning of the names of the ini options."""

NAMES = ("min_graphs", "max_graphs", "max_graph_breaks", "max_recompiles", "within", "allow")
"""The arguments of the marker."""

INI = NAMES[1:]
"""The arguments that are ini options as well, behind `torchgraph_`."""

SIGNATURE = (
    "torchgraph(min_graphs=1, max_graphs=None, max_graph_breaks=0, max_recompiles=0, within=None, "
    "allow=())"
)
DESCRIPTION = (
    f"{SIGNATURE}: watch what the test compiles, and fail it where there are fewer or more graphs, "
    "graph breaks or recompilations; None is no limit"
)
