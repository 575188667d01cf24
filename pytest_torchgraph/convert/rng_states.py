"""Ops recomputed by a compiled backward, and the random states saved for them by the forward.

Under activation checkpointing, AOTAutograd makes the forward return the generator state before each
recomputed random op, as an additional saved value. To do so, it rewrites the output node, and loses
the descriptions of all outputs (torch 2.9 to 2.15, `functionalize_rng_ops`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..graph.model import RecomputedBy, TensorMeta
from . import node_meta

_SAVING = "run_and_save_rng_state"
"""Op of the forward. It returns the random state, and the result of the random op."""
_RESTORING = ("run_with_rng_state", "graphsafe_run_with_rng_state")
"""Ops of the backward, which run a random op with a given state."""
_INPUT = "rng_state_output_"
"""Name prefix of the backward inputs that are random states."""


class SavedForBackwardsAgain:
    """Description of a saved value, in place of torch's lost one. `is_saved` reads its name."""


def descriptions_of(output: fx.Node) -> Any:
    """Return the descriptions of the outputs of a live AOTAutograd graph, in order.

    Return `None` if there are no descriptions, or if it is unknown which outputs are saved.
    """
    descriptions = output.meta.get("desc")
    if descriptions is not None or not any(_states_returned(output)):
        return descriptions
    real = torch_private.outputs_of_forward()
    return None if real is None else describe_outputs(output, [None] * real)


def describe_outputs(output: fx.Node, real: Sequence[Any]) -> list[Any] | None:
    """Return the descriptions of a forward's outputs, given the descriptions of the real outputs.

    Return `None` if the output node has descriptions, or if the forward saves no random state.
    """
    if output.meta.get("desc") is not None or not any(_states_returned(output)):
        return None
    returned = output.args[0]
    assert isinstance(returned, tuple | list)
    return [*real, *(SavedForBackwardsAgain() for _ in returned[len(real) :])]


def is_state(node: fx.Node) -> bool:
    """Return True if a node is a random state: a result in a forward, or a backward's input."""
    if node.op == "placeholder":
        return node.name.startswith(_INPUT)
    if node.target is not operator.getitem or node.args[1] != 0:
        return False
    producer = node.args[0]
    return isinstance(producer, fx.Node) and str(producer.target) == _SAVING


def restores(node: fx.Node) -> bool:
    """Return True if a node runs an op with a random state that the forward saved."""
    return str(node.target) in _RESTORING


def names_in_backward(forward: fx.Graph, backward: fx.Graph) -> dict[str, str]:
    """Map the names of a backward's random states to their names in the forward."""
    (output,) = forward.find_nodes(op="output")
    state_inputs = [node.name for node in backward.find_nodes(op="placeholder") if is_state(node)]
    states = [node.name for node in _states_returned(output)]
    return dict(zip(state_inputs, states, strict=False))


def meta_of(node: fx.Node) -> Mapping[str, Any]:
    """Return the meta of a node, including module and source line."""
    # For an op that saves or restores a state, torch sets module and line only on the getitems of
    # its results.
    if "nn_module_stack" not in node.meta and str(node.target) in (_SAVING, *_RESTORING):
        for user in node.users:
            if user.target is operator.getitem and "nn_module_stack" in user.meta:
                return user.meta
    return node.meta


def value_of(node: fx.Node) -> Any:
    """Return `node_meta.value_of`, but with a constant size for a random state.

    torch makes the size of a state symbolic.
    """
    if str(node.target) == _SAVING:
        return None  # as in a live graph, in which only the getitems of the result have values
    value = node_meta.value_of(node)
    if value is None or not is_state(node):
        return value
    size = _size(node, value)
    return value if size is None else TensorMeta("uint8", (size,), (1,), "cpu")


def _states_returned(output: fx.Node) -> Iterator[fx.Node]:
    """Yield the random states among the outputs of a forward."""
    returned = output.args[0]
    for value in returned if isinstance(returned, tuple | list) else ():
        if isinstance(value, fx.Node) and is_state(value):
            yield value


def _size(node: fx.Node, value: Any) -> int | None:
    """Return the size of a random state; in a printed graph, `None` except on the CPU."""
    if isinstance(value, torch.Tensor):
        return torch_private.hint_of(value.shape[0])
    inputs = node.graph.find_nodes(op="placeholder")
    devices = {getattr(node_meta.value_of(operand), "device", None) for operand in inputs} - {None}
    return torch.get_rng_state().numel() if devices == {"cpu"} else None


_TAG = "recompute"
"""Meta key of torch.utils.checkpoint's policy, present on each node of a checkpointed region."""
_SUFFIXES = ("_recomputed", "_recompute")
"""Suffixes that the partitioner may append to the name of a copied node."""


_FUNCTION = "autograd.function"
"""Name that Dynamo puts on the function stack of a `torch.autograd.Function`."""


def _has_own_formula(op: Any) -> bool:
    """Return True for a custom op, whose backward torch does not define."""
    return isinstance(op, torch._ops.OpOverload) and op.namespace not in ("aten", "prims")


def _is_in_own_backward(node: fx.Node) -> bool:
    """Return True if the user wrote the backward that runs the node.

    It is the backward of a `torch.autograd.Function` or of a custom op, or a tensor hook.
    """
    meta = meta_of(node)
    # torch marks all that runs between two formulas as a sum of gradients.
    if meta.get("is_gradient_acc") and node.target is not torch.ops.aten.add.Tensor:
        return True
    if any(function[0] == _FUNCTION for function in meta.get("source_fn_stack") or ()):
        return True
    forward = meta.get("fwd_source_fn_stack") or ()
    return any(_has_own_formula(op) for _, op in forward[-1:])


class RecomputedCopies:
    """Classifier of backward nodes: copied by the partitioner, or made by autograd or the user.

    Args:
        forward: the forward that was split from the same joint graph.
    """

    def __init__(self, forward: fx.Graph):
        self._names = {node.name for node in forward.nodes if node.op == "call_function"}

    def by(self, node: fx.Node) -> RecomputedBy:
        """Return `Node.by`."""
        if meta_of(node).get(_TAG) is not None:
            return "checkpoint"
        if restores(node):  # the partitioner creates this op for a copy, under a new name
            return "partitioner"
        stem = node.name
        for suffix in _SUFFIXES:
            stem = stem.removesuffix(suffix)
        if stem in self._names:
            return "partitioner"
        return "function" if _is_in_own_backward(node) else "formula"
