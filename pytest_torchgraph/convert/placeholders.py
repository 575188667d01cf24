"""Roles and names of the inputs of Dynamo's and AOTAutograd's graphs.

A role is one of `graph.model.INPUT_OPS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from .aot_descriptors import input_index
from .dynamo_sources import source_to_fqn


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
