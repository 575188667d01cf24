"""Graphs as pure data: model, text form, equality, difference, assertions. Never imports torch.

- `model`: `Graph`, `Node` and their parts. `module_paths`: their names. `digits`: their constants.
- `program`: the graphs of a run, or of a file: one value. `events`: what happened beside them.
- `text/`: the `.tgraph` form, written and read back.
- `equality/`: canonical form, numbered graph, isomorphism: how `==` decides.
- `diff/`: the differences of two captures, as findings. `blocks`: those of blocks in one capture.
- `cost/`: FLOPs, saved and peak bytes, and what a backward computes again.
- `census`: each op with the number of its runs. `select`, `op_checks`, `pattern`, `checks`:
  questions and assertions about ops; `collectives`, `collective_checks`: about communication.
- `divergence`: the first difference of a run from eager, as a value.
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
