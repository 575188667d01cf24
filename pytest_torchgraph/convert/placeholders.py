"""Roles, names and order of the inputs of Dynamo and AOTAutograd graphs.

AOTAutograd's descriptions of inputs and outputs are recognized by class name: the classes are in a
private module (since torch 2.9).

A role is one of `graph.model.INPUT_OPS`.

torch orders inputs by first use, so `f(x, y)` and `f(y, x)` would be the same graph. This module
orders them by declaration:

    inputs    declared inputs (tensors, then sizes, then numbers), then saved values in the
              order in which the forward computes them, then tangents
    saved     inputs in declaration order, then values in the order of computation
    outputs   new values of mutated inputs and gradients in the declaration order of their
              inputs, then all other outputs in torch's order
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import fx

InputName: TypeAlias = tuple[str, str]
"""Role and name of an input, such as `("parameter", "fc.weight")`."""

_MAX_BASES = 8
"""Maximum number of view bases to follow, in case descriptions refer to each other in a cycle."""


def input_index(description: Any) -> int | None:
    """Return the position of the Dynamo input that an AOTAutograd input is, or is a view of."""
    for _ in range(_MAX_BASES):
        if type(description).__name__ == "PlainAOTInput":
            return int(description.idx)
        description = getattr(description, "base_of", None) or getattr(description, "base", None)
        if isinstance(description, list | tuple):
            description = description[0] if description else None
    return None


def output_index(description: Any) -> int | None:
    """Return an output's position among the outputs of Dynamo's graph, `None` for other outputs."""
    return int(description.idx) if type(description).__name__ == "PlainAOTOutput" else None


def is_saved(description: Any) -> bool:
    """Return True if an output is a value that the forward saves for its backward."""
    return type(description).__name__.startswith("SavedForBackwards")


def is_gradient(description: Any) -> bool:
    """Return True if an output is a gradient."""
    return "GradAOTOutput" in type(description).__name__


def belongs_to(description: Any, position: int, backward: bool) -> int | None:
    """Return the position of the Dynamo input that an output updates or is the gradient of.

    Return `None` for any other output.

    Args:
        description: `desc` of the output.
        position: position of the output among the real outputs.
        backward: True if the graph is a backward.
    """
    kind = type(description).__name__
    if kind == "InputMutationAOTOutput":
        return input_index(description.mutated_input)
    if kind == "GradAOTOutput":
        return input_index(description.grad_of)
    # A backward returns None for an input without gradient, in the position of the gradient.
    return position if backward and description is None else None


_PART = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.?(\w+)")
"""One step of a source: `['key']`, `[0]` or `.attribute`."""

_NOISE = frozenset(
    {"_modules", "_parameters", "_buffers", "__closure__", "cell_contents", "__self__", "forward"}
    | {"L", "G", "__wrapped__", "_orig_mod", "__dict__"}
)
"""Steps that a path omits: containers of torch.nn, closures, wrappers, and Dynamo's roots."""

STACK_VALUE = "___stack"
"""Dynamo's source for a value on the stack at a graph break, in the code after the break."""


def source_to_fqn(source: str) -> str:
    """Return the path of a source: `fc.weight` for `L['self']._modules['fc'].weight`."""
    parts = [a or b or c for a, b, c in _PART.findall(source)]
    named_parts = [part for part in parts if part not in _NOISE]
    if len(named_parts) > 1 and named_parts[0] in ("self", "kwargs"):
        named_parts = named_parts[1:]
    return ".".join(part.strip("_") or part for part in named_parts) or "input"


def module_fqn(source: str) -> str:
    """Return the path of a module's source; "" for the module whose frame is compiled."""
    path = source_to_fqn(source)
    return "" if path in ("self", "input", "mod") else path


def dynamo_inputs(
    gm: fx.GraphModule,
    example_inputs: list[Any],
    tensors: Mapping[int, InputName],
    numbers: Collection[str],
) -> list[InputName]:
    """Return (role, name) of each input of a Dynamo graph.

    Known tensors are recognized by identity, because Dynamo's names are relative to the frame.
    Call this inside the backend: Dynamo erases the sources in the nodes' meta afterwards.

    Args:
        gm: the graph.
        example_inputs: values that Dynamo passes to the backend, one per placeholder.
        tensors: (role, name) of each known tensor, by `id`.
        numbers: names of the numbers among the target's arguments.
    """
    named: list[InputName] = []
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, example in zip(placeholders, example_inputs, strict=False):
        role_and_name = tensors.get(id(example)) if isinstance(example, torch.Tensor) else None
        if role_and_name is None:
            grapharg = node.meta.get("grapharg")
            name = getattr(getattr(grapharg, "source", None), "name", None)
            name = name() if callable(name) else name  # a method before torch 2.11
            name = source_to_fqn(name) if name else "size"
            if isinstance(example, int | torch.SymInt) and name not in numbers:
                name = "size"
            role_and_name = ("input", name)
        named.append(role_and_name)
    return named


def aot_inputs(
    gm: fx.GraphModule,
    dynamo: list[InputName],
    forward_names: dict[str, str],
    states: Mapping[str, str],
    attributes: Mapping[str, InputName] = MappingProxyType({}),
) -> dict[str, InputName]:
    """Return (role, name) of each placeholder of an AOTAutograd graph, by fx name.

    Args:
        gm: a forward, backward or inference graph.
        dynamo: inputs of the Dynamo graph it was compiled from.
        forward_names: for a backward, the node names of its forward (`Converted.names`). A
            placeholder with one of these names is a saved value.
        states: the forward's name of each placeholder that has another name in the backward; see
            `rng_states.names_in_backward`.
        attributes: (role, name) of tensors that are attributes of the Dynamo graph, by attribute.
    """
    named: dict[str, InputName] = {}
    saved: dict[str, str] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        description = node.meta.get("desc")
        forward_name = states.get(node.name, node.name)
        index = input_index(description)
        if index is not None and index < len(dynamo):
            named[node.name] = dynamo[index]
        elif (held := attributes.get(getattr(description, "target", ""))) is not None:
            named[node.name] = held
        elif type(description).__name__ == "TangentAOTInput":
            output = getattr(description.output, "idx", None)
            named[node.name] = ("tangent", "tangent" if output is None else f"tangent.{output}")
        elif forward_name in forward_names:
            saved[forward_name] = node.name
        else:
            named[node.name] = ("input", node.name)
    for forward_name, name in forward_names.items():  # in the order of computation
        if forward_name in saved:
            named[saved[forward_name]] = ("saved", name)
    return named


class DeclaredOrder:
    """Sort keys for the inputs, saved values and outputs of one graph.

    Args:
        graph: the graph.
        inputs, input_order, dynamo: see `from_fx.Naming`.
    """

    def __init__(
        self,
        graph: fx.Graph,
        inputs: Mapping[str, InputName],
        input_order: Mapping[str, int],
        dynamo: Sequence[InputName],
    ):
        self._inputs = inputs
        self._input_order = input_order
        self._dynamo = dynamo
        saved = [name for name, (role, _) in inputs.items() if role == "saved"]
        self._saved = {name: number for number, name in enumerate(saved)}
        # Inputs that are attributes of the Dynamo graph, such as the state of an optimizer.
        self._attributes = {
            node.meta["desc"].target: inputs[node.name][1]
            for node in graph.find_nodes(op="placeholder")
            if hasattr(node.meta.get("desc"), "target") and node.name in inputs
        }

    def of_input(self, node: fx.Node) -> tuple[int, int]:
        """Return the sort key of a placeholder among the inputs."""
        role, name = self._inputs.get(node.name, ("input", node.name))
        if role == "saved":
            return 1, self._saved.get(node.name, 0)
        return 2 if role == "tangent" else 0, self._input_order.get(name, len(self._input_order))

    def of_saved(self, node: fx.Node, order: Mapping[fx.Node, int]) -> tuple[int, ...]:
        """Return the sort key of a value among the saved values of a forward.

        Args:
            node: the saved value.
            order: position of each node in the graph.
        """
        value = original_value(node)
        return (0, *self.of_input(value)) if value.op == "placeholder" else (1, order[value])

    def of_output(self, description: Any, position: int, backward: bool) -> tuple[int, int]:
        """Return the sort key of an output among the real outputs.

        Args:
            description: `desc` of the output.
            position: position of the output among the real outputs.
            backward: True if the graph is a backward.
        """
        index = belongs_to(description, position, backward)
        # An attribute of the Dynamo graph is none of its inputs, but may be written like one.
        written = getattr(description, "mutated_input", None)
        name = self._attributes.get(getattr(written, "target", ""))
        if index is not None and index < len(self._dynamo):
            name = self._dynamo[index][1]
        if name is None:
            return 1, position
        return 0, self._input_order.get(name, len(self._input_order))


def original_value(node: fx.Node) -> fx.Node:
    """Return the value that `node` aliases if autograd made it by `aten.detach`, else `node`."""
    while node.target is torch.ops.aten.detach.default:
        (node,) = node.args  # type: ignore[assignment]
    return node
