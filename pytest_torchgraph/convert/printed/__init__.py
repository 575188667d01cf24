"""Graphs that torch's structured trace printed, to the same `Graph` as the live ones.

- `syntax`: text -> Python syntax tree, with comments and sources.
- `statements`: syntax tree -> nodes of torch.fx; `calls`, `callables`, `values`: its expressions.
- `reading`: the whole module, its inputs, and the conversion that live graphs go through.
"""

from __future__ import annotations

from .reading import (
    Printed,
    aot_names,
    convert_printed,
    describe_by_joint,
    describe_like,
    dynamo_names,
    is_size,
    parse_printed,
    read_printed,
)
from .syntax import PrintedGraphError

__all__ = [
    "Printed",
    "PrintedGraphError",
    "aot_names",
    "convert_printed",
    "describe_by_joint",
    "describe_like",
    "dynamo_names",
    "is_size",
    "parse_printed",
    "read_printed",
]
