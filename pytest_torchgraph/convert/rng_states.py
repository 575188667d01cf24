"""Ops that a compiled backward runs again, and the random states that its forward keeps for them.

Under activation checkpointing AOTAutograd lets a forward return the state that the generator had
before each such op, as one more saved value. It writes the output of the graph anew for that, and
loses the descriptions of all of its outputs (torch 2.9 to 2.15, `functionalize_rng_ops`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch.fx

from .. import torch_private
from ..graph.model import RecomputedBy, TensorMeta
from . import node_meta

_KEEPING = "run_and_save_rng_state"
_RUNNING = (_KEEPING, "run_with_rng_state", "graphsafe_run_with_rng_state")
_INPUT = "rng_state_output_"
"""How the names of the inputs of a backward begin that are states."""


class SavedForBackwardsAgain:
    """Stands for torch's description of a saved value, where torch has lost it."""


def descriptions_of(output: torch.fx.Node) -> Any:
    """The descriptions of the outputs of a live graph of AOTAutograd, in their order.

    None where there are none, and where nobody knows which of several outputs are saved.
    """
    descriptions = output.meta.get("desc")
    if descriptions is not None or not any(_states_returned(output)):
        return descriptions
    real = torch_private.outputs_of_forward()
    return None if real is None else described(output, [None] * real)


def described(output: torch.fx.Node, real: Sequence[Any]) -> list[Any] | None:
    """The descriptions of the outputs of a forward of which those of the real ones are known.

    None where it has a description, and where it keeps no state.
    """
    if output.meta.get("desc") is not None or not any(_states_returned(output)):
        return None
    returned = output.args[0]
    assert isinstance(returned, tuple | list)
    return [*real, *(SavedForBackwardsAgain() for _ in returned[len(real) :])]


def is_state(node: torch.fx.Node) -> bool:
    """Whether a node is such a state: in a forward what the op gives, in a backward an input."""
    if node.op == "placeholder":
        return node.name.startswith(_INPUT)
    if node.target is not operator.getitem or node.args[1] != 0:
        return False
    made_by = node.args[0]
    return isinstance(made_by, torch.fx.Node) and str(made_by.target) == _KEEPING


def restores(node: torch.fx.Node) -> bool:
    """Return True for an op that runs with a state that the forward kept."""
    return str(node.target) in _RUNNING[1:]


def names_in_backward(forward: torch.fx.Graph, backward: torch.fx.Graph) -> dict[str, str]:
    """The forward's names of the inputs of a backward that are states, by their own."""
    (output,) = forward.find_nodes(op="output")
    given = [node.name for node in backward.find_nodes(op="placeholder") if is_state(node)]
    states = [node.name for node in _states_returned(output)]
    return dict(zip(given, states, strict=False))


def meta_of(node: torch.fx.Node) -> Mapping[str, Any]:
    """The meta of a node, with the module and the line that it is from.

    Of an op that runs with a state, torch gives these to what is taken of its results alone.
    """
    if "nn_module_stack" not in node.meta and str(node.target) in _RUNNING:
        for user in node.users:
            if user.target is operator.getitem and "nn_module_stack" in user.meta:
                return user.meta
    return node.meta


def value_of(node: torch.fx.Node) -> Any:
    """As `node_meta.value_of`, with the size of a state: torch makes a symbol of it."""
    if str(node.target) == _KEEPING:
        return None  # as of a live graph: its parts have values
    value = node_meta.value_of(node)
    if value is None or not is_state(node):
        return value
    size = _size(node, value)
    return value if size is None else TensorMeta("uint8", (size,), (1,), "cpu")


def _states_returned(output: torch.fx.Node) -> Iterator[torch.fx.Node]:
    returned = output.args[0]
    for each in returned if isinstance(returned, tuple | list) else ():
        if isinstance(each, torch.fx.Node) and is_state(each):
            yield each


def _size(node: torch.fx.Node, value: Any) -> int | None:
    """The size of a state; a printed graph has it only where it is the state of the CPU."""
    if isinstance(value, torch.Tensor):
        return torch_private.hint_of(value.shape[0])
    inputs = node.graph.find_nodes(op="placeholder")
    devices = {getattr(node_meta.value_of(each), "device", None) for each in inputs} - {None}
    return torch.get_rng_state().numel() if devices == {"cpu"} else None


_TAG = "recompute"
"""The key under which torch.utils.checkpoint's policy is in the meta of each node of its region."""
_SUFFIXES = ("_recomputed", "_recompute")
"""What the partitioner may append to the name of a node that it copies."""


class Copies:
    """Tells the nodes that the partitioner copied into a backward from those of autograd.

    Args:
        forward: the forward that was split from the same joint graph.
    """

    def __init__(self, forward: torch.fx.Graph):
        self._names = {node.name for node in forward.nodes if node.op == "call_function"}

    def by(self, node: torch.fx.Node) -> RecomputedBy:
        """See `Node.by`."""
        if meta_of(node).get(_TAG) is not None:
            return "checkpoint"
        if restores(node):  # which the partitioner makes for a copy, under a new name
            return "partitioner"
        stem = node.name
        for suffix in _SUFFIXES:
            stem = stem.removesuffix(suffix)
        return "partitioner" if stem in self._names else "formula"
