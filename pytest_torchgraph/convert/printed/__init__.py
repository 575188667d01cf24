"""Graphs that torch's structured trace printed, to the same `Graph` as the live ones.

- `syntax`: text -> Python syntax tree, comments and sources.
- `reading`, `statements`: syntax tree -> torch.fx graph; `calls`, `callables`, `values`: its
  expressions.
- `results`, `descriptions`, `scopes`: annotations, comments and sources, into the nodes' meta.
- `inputs`: roles and names of the inputs.
- `graphs`: all of it, and the conversion that live graphs go through. `errors`: the one error.
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
