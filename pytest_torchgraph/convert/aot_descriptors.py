"""AOTAutograd's descriptions of the inputs and outputs of its graphs: `desc` in a node's meta.

They are told by the names of their classes, which live in a private module (since torch 2.9).
"""

from __future__ import annotations

from typing import Any

_MAX_BASES = 8
"""How many bases of views are followed: a bound against descriptions that refer in a circle."""


def input_index(description: Any) -> int | None:
    """The position of the Dynamo input that a placeholder of AOTAutograd is, or is a view of."""
    for _ in range(_MAX_BASES):
        if type(description).__name__ == "PlainAOTInput":
            return int(description.idx)
        description = getattr(description, "base_of", None) or getattr(description, "base", None)
        if isinstance(description, list | tuple):
            description = description[0] if description else None
    return None


def output_index(description: Any) -> int | None:
    """The position among the outputs of Dynamo's graph; None for what is none of these."""
    return int(description.idx) if type(description).__name__ == "PlainAOTOutput" else None


def is_saved(description: Any) -> bool:
    """Whether an output is a value that the forward saves for its backward."""
    return type(description).__name__.startswith("SavedForBackwards")


def is_gradient(description: Any) -> bool:
    """Whether an output is a gradient."""
    return "GradAOTOutput" in type(description).__name__


def belongs_to(description: Any, position: int, backward: bool) -> int | None:
    """The position of the Dynamo input that an output is the new value or the gradient of.

    None for any other output.

    Args:
        position: the position of the output among the real ones.
        backward: whether the graph is a backward.
    """
    kind = type(description).__name__
    if kind == "InputMutationAOTOutput":
        return input_index(description.mutated_input)
    if kind == "GradAOTOutput":
        return input_index(description.grad_of)
    # A backward returns None for an input without gradient, in the place of that input.
    return position if backward and description is None else None
