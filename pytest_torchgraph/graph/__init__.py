"""Graphs as pure data: model, text form, equality, difference, assertions. Never imports torch.

- `model`: `Graph`, `Node` and their parts. `module_paths`, `numbering`: their names.
- `program`: the graphs of a run, or of a file: one value.
- `text/`: the `.tgraph` form, written and read back.
- `equality/`: canonical form, numbered graph, isomorphism: how `==` decides.
- `diff/`: the differences of two captures, as findings.
- `graph_break`, `eager_op`: where a graph ended, and what ran outside of every compiled one.
- `ops`, `find`: counting and finding ops. `checks`: assertions. `failures`: what they raise.
"""

from __future__ import annotations

from ..ops.names import OpCounts
from .diff.findings import Finding, GraphDiff, Place
from .model import (
    Arg,
    Atom,
    Device,
    Effect,
    Graph,
    InputRef,
    Node,
    Ref,
    Result,
    Source,
    SubgraphRef,
    Symbol,
    TensorMeta,
)

__all__ = [
    "Arg",
    "Atom",
    "Device",
    "Effect",
    "Finding",
    "Graph",
    "GraphDiff",
    "InputRef",
    "Node",
    "OpCounts",
    "Place",
    "Ref",
    "Result",
    "Source",
    "SubgraphRef",
    "Symbol",
    "TensorMeta",
]
