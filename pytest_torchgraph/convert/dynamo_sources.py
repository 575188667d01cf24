"""Dynamo's sources of inputs and modules, as the paths that a user knows."""

from __future__ import annotations

import re

_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.?(\w+)")
"""One step of a source: `['key']`, `[0]` or `.attribute`."""

_NOISE = frozenset(
    {"_modules", "_parameters", "_buffers", "__closure__", "cell_contents", "__self__", "forward"}
    | {"L", "G", "__wrapped__", "_orig_mod", "__dict__"}
)
"""Steps that are no part of a path: containers of torch.nn, closures, wrappers, Dynamo's roots."""

STACK_VALUE = "___stack"
"""Dynamo's source for a value that was on the stack at a graph break, in the code behind it."""


def source_to_fqn(source: str) -> str:
    """The path of a source: `fc.weight` for `L['self']._modules['fc'].weight`."""
    parts = [a or b or c for a, b, c in _PART.findall(source)]
    kept = [part for part in parts if part not in _NOISE]
    if len(kept) > 1 and kept[0] in ("self", "kwargs"):
        kept = kept[1:]
    return ".".join(part.strip("_") or part for part in kept) or "input"


def module_fqn(source: str) -> str:
    """The path of a module's source; "" for the module that the frame belongs to."""
    path = source_to_fqn(source)
    return "" if path in ("self", "input", "mod") else path
