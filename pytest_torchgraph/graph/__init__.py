"""Graphs as pure data: model, text form, op names, equality, difference. Never imports torch."""

from __future__ import annotations

from ..ops.names import OpCounts
from .diff.report import Finding, GraphDiff
from .model import (
    Arg,
    Atom,
    Device,
    Effect,
    Graph,
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
    "Node",
    "OpCounts",
    "Ref",
    "Result",
    "Source",
    "SubgraphRef",
    "Symbol",
    "TensorMeta",
]
