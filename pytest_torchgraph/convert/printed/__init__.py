"""Convert graphs printed by torch's structured trace to the same `Graph` as live graphs.

- `syntax`: text -> Python syntax tree, with comments and sources.
- `statements`: syntax tree -> torch.fx nodes; `calls`, `callables`, `values` read expressions.
- `reading`: the whole module and its inputs, then the same conversion as for live graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door
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

if TYPE_CHECKING:
    from .values import PrintedNames as PrintedNames
else:
    __getattr__ = front_door(__name__, {"values": "PrintedNames"})

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
