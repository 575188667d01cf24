"""Graphs as torch's structured trace prints them, read back into the `Graph` of the live ones."""

from __future__ import annotations

from .errors import PrintedGraphError
from .graphs import convert_printed, parse_printed
from .inputs import aot_names, describe_like, dynamo_names, is_size
from .reading import Printed, read_printed

__all__ = [
    "Printed",
    "PrintedGraphError",
    "aot_names",
    "convert_printed",
    "describe_like",
    "dynamo_names",
    "is_size",
    "parse_printed",
    "read_printed",
]
