"""Graphs as pure data: model, text form, equality, difference, assertions. Never imports torch.

- `model`: `Graph`, `Node` and their parts. `module_paths`: their names. `digits`: their constants.
- `program`: the graphs of a run or a file, as one value. `events`: eager ops and graph breaks.
- `text/`: writer and parser of the `.tgraph` form.
- `equality/`: canonical form, numbered graph, isomorphism: the implementation of `==`.
- `diff/`: differences between two captures, as findings. `blocks`: between blocks of one capture.
- `cost/`: FLOPs, saved bytes, peak memory, and recomputation in the backward.
- `census`: each op with its number of runs. `select`, `op_checks`, `pattern`, `checks`: queries and
  assertions about ops; `collectives`, `collective_checks`: about communication.
- `divergence`: the first difference between a run and eager, as a value.
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
