"""What AOTAutograd says of the inputs and outputs of its graphs: the `desc` of a node's meta.

Read by the names of the classes, which live in a private module (since torch 2.9).
"""

from __future__ import annotations

from typing import Any


def input_index(description: Any) -> int | None:
    """Which of Dynamo's inputs a placeholder of AOTAutograd is, seen through views and such."""
    for _ in range(8):
        if type(description).__name__ == "PlainAOTInput":
            return int(description.idx)
        description = getattr(description, "base_of", None) or getattr(description, "base", None)
        if isinstance(description, list | tuple):
            description = description[0] if description else None
    return None


def is_saved(description: Any) -> bool:
    """Whether an output is a value that the forward keeps for its backward."""
    return type(description).__name__.startswith("SavedForBackwards")


def belongs_to(description: Any, position: int, backward: bool) -> int | None:
    """The Dynamo input that an output is the new value or the gradient of; None for a real one."""
    kind = type(description).__name__
    if kind == "InputMutationAOTOutput":
        return input_index(description.mutated_input)
    if kind == "GradAOTOutput":
        return input_index(description.grad_of)
    # A backward returns None for an input without gradient, in the place of that input.
    return position if backward and description is None else None
