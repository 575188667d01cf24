"""Graphs that torch's structured trace printed, to the same `Graph` as the live ones.

- `syntax`: text -> Python syntax tree, comments and sources.
- `reading`, `statements`: syntax tree -> torch.fx graph; `calls`, `callables`, `values`: its
  expressions.
- `results`, `descriptions`, `scopes`: annotations, comments and sources, into the nodes' meta.
- `inputs`: roles and names of the inputs.
- `graphs`: all of it, and the conversion that live graphs go through. `errors`: the one error.
"""

from __future__ import annotations

from .inputs import aot_names, describe_by_joint, describe_like, dynamo_names, is_size
from .print_error import PrintedGraphError
from .printed_graph import convert_printed, parse_printed
from .reading import Printed, read_printed

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
