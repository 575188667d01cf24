"""The levels of graphs: the stages of tracing and compiling that a graph is taken at."""

from __future__ import annotations

from typing import Literal, TypeAlias

Level: TypeAlias = Literal[
    "dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "post_grad"
]
"""The stage that a graph was taken at.

- `dispatch`: the ops that an eager run dispatches, forward and backward.
- `fx`: `torch.fx.symbolic_trace`, or a `torch.fx` graph of the user's.
- `dynamo`: what Dynamo hands to a backend: torch functions, before autograd.
- `aot`: AOTAutograd's functional graphs of ATen ops, forward and backward apart.
- `compiled_autograd`: the backward of a whole step, as one graph.
- `export`: `torch.export`'s program.
- `post_grad`: Inductor's graphs after its own passes, before code is generated.
"""

LEVELS: tuple[Level, ...] = (
    "dispatch",
    "fx",
    "dynamo",
    "aot",
    "compiled_autograd",
    "export",
    "post_grad",
)
"""All levels, in the order in which messages list them."""

SAVING_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot", "compiled_autograd", "post_grad"})
"""The levels whose forward graphs say what they keep for the backward."""

ATEN_LEVELS: frozenset[Level] = frozenset({"dispatch", "aot", "compiled_autograd", "post_grad"})
"""The levels at which only registered ops occur, composite ones being decomposed already."""

FLOP_LEVELS: frozenset[Level] = ATEN_LEVELS | {"export"}
"""The levels whose ops torch has formulas for."""
