"""Roles, names and order of the inputs of Dynamo's and AOTAutograd's graphs.

They are told by the names of their classes, which live in a private module (since torch 2.9).

A role is one of `graph.model.INPUT_OPS`.

torch puts inputs in the order of their first use, by which `f(x, y)` and `f(y, x)` would be the
same graph. Here they are in the order in which the user declared them:

    inputs    declared ones as declared (tensors, then sizes, then numbers), then saved values as
              the forward computes them, then tangents
    saved     inputs as declared, then values as they are computed
    outputs   new values of mutated inputs and gradients as the inputs are declared, then the
              others as torch has them
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

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


def dynamo_inputs(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    tensors: Mapping[int, tuple[str, str]],
    numbers: Collection[str] = (),
) -> list[tuple[str, str]]:
    """(role, name) of each input of a Dynamo graph.

    A known tensor is recognized by identity, since Dynamo's own names are relative to the frame. To
    be called inside the backend: Dynamo erases the sources in the nodes' meta afterwards.

    Args:
        gm: the graph.
        example_inputs: the values that Dynamo hands to the backend, one for each placeholder.
        tensors: (role, name) of each tensor that is known, by its id.
        numbers: the names of the numbers among the target's arguments.
    """
    named: list[tuple[str, str]] = []
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, example in zip(placeholders, example_inputs, strict=False):
        known = tensors.get(id(example)) if isinstance(example, torch.Tensor) else None
        if known is None:
            grapharg = node.meta.get("grapharg")
            name = getattr(getattr(grapharg, "source", None), "name", None)
            name = name() if callable(name) else name  # a method before torch 2.11
            name = source_to_fqn(name) if name else "size"
            if isinstance(example, int | torch.SymInt) and name not in numbers:
                name = "size"
            known = ("input", name)
        named.append(known)
    return named


def aot_inputs(
    gm: torch.fx.GraphModule,
    dynamo: list[tuple[str, str]],
    forward_names: dict[str, str],
    states: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, tuple[str, str]]:
    """(role, name) of each placeholder of a graph of AOTAutograd, by its fx name.

    Args:
        gm: a forward, backward or inference graph.
        dynamo: the inputs of the Dynamo graph that it was made from.
        forward_names: for a backward, the names of its forward's nodes (`Converted.names`); a
            placeholder with one of these is a saved value.
        states: the forward's names of placeholders that are called otherwise (`rng_states`).
    """
    named: dict[str, tuple[str, str]] = {}
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            continue
        description = node.meta.get("desc")
        index = input_index(description)
        if index is not None and index < len(dynamo):
            named[node.name] = dynamo[index]
        elif type(description).__name__ == "TangentAOTInput":
            output = getattr(description.output, "idx", None)
            named[node.name] = ("tangent", "tangent" if output is None else f"tangent.{output}")
        elif states.get(node.name, node.name) not in forward_names:
            named[node.name] = ("input", node.name)
    placeholders = {
        states.get(node.name, node.name): node.name
        for node in gm.graph.nodes
        if node.op == "placeholder"
    }
    for key, name in forward_names.items():
        if key in placeholders and placeholders[key] not in named:
            named[placeholders[key]] = ("saved", name)
    return named


class DeclaredOrder:
    """Sort keys for the inputs, saved values and outputs of one graph.

    Args:
        inputs, ranks, dynamo: see `from_fx.Naming`.
    """

    def __init__(
        self,
        inputs: Mapping[str, tuple[str, str]],
        ranks: Mapping[str, int],
        dynamo: Sequence[tuple[str, str]],
    ):
        self._inputs = inputs
        self._ranks = ranks
        self._dynamo = dynamo
        saved = [name for name, (role, _) in inputs.items() if role == "saved"]
        self._saved = {name: number for number, name in enumerate(saved)}

    def of_input(self, node: torch.fx.Node) -> tuple[int, int]:
        """The key of a placeholder among the inputs."""
        role, name = self._inputs.get(node.name, ("input", node.name))
        if role == "saved":
            return 1, self._saved.get(node.name, 0)
        return 2 if role == "tangent" else 0, self._ranks.get(name, len(self._ranks))

    def of_saved(self, node: torch.fx.Node, order: Mapping[torch.fx.Node, int]) -> tuple[int, ...]:
        """The key of a value among those that a forward saves.

        Args:
            order: the position of each node in the graph.
        """
        value = original_value(node)
        return (0, *self.of_input(value)) if value.op == "placeholder" else (1, order[value])

    def of_output(self, description: Any, position: int, backward: bool) -> tuple[int, int]:
        """The key of an output among the real ones.

        Args:
            description: its `desc`.
            position: its position among the real ones.
            backward: whether the graph is a backward.
        """
        index = belongs_to(description, position, backward)
        if index is None or index >= len(self._dynamo):
            return 1, position
        name = self._dynamo[index][1]
        return 0, self._ranks.get(name, len(self._ranks))


def original_value(node: torch.fx.Node) -> torch.fx.Node:
    """The value that this one is an alias of by autograd's `aten.detach`; mostly itself."""
    while node.target is torch.ops.aten.detach.default:
        (node,) = node.args  # type: ignore[assignment]
    return node
