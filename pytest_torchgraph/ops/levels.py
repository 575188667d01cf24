"""The levels at which a graph can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass

Level: TypeAlias = Literal[
    "dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "post_grad"
]


LEVELS: tuple[Level, ...] = (
    "dispatch",
    "fx",
    "dynamo",
    "aot",
    "compiled_autograd",
    "export",
    "post_grad",
)


ATEN_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot", "compiled_autograd", "post_grad"})
"""The levels at which only registered ops occur, after composite ones were taken apart."""
