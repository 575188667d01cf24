"""Finds out which of Dynamo's graphs torch.compile's caches refuse, when this is first needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ... import torch_private
from ...convert.graph_modules import copied
from ...convert.refused_nodes import RefusedOp, describe_refused
from ...watching.cache_lookups import (
    NO_OP,
    NO_OP_BACKWARD,
    SWITCHED_OFF,
    CacheBypass,
    describe_bypass,
)

_TRIVIAL = 4
"""Maximum number of distinct functions in a graph that is split to look for an empty backward. A
larger graph always has an op in its backward.
"""


class _KeptGraph(NamedTuple):
    """A Dynamo graph with its fake inputs. Neither keeps the memory of a tensor alive.

    Attributes:
        gm: a copy of the graph.
        inputs: the inputs.
        trains: see `trains_with`.
    """

    gm: fx.GraphModule
    inputs: list[Any]
    trains: bool


def trains_with(example_inputs: list[Any]) -> bool:
    """Return True if AOTAutograd makes a backward for a graph with these inputs."""
    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    )


class BypassSearch:
    """The graphs of a capture, and a later search for what keeps them out of the caches.

    Each graph is copied, because Dynamo removes its fake tensors. The search uses the settings from
    when this object was created.

    Args:
        modules: paths of modules by `id`.
        options: inductor's settings for these graphs.
        sees_aot: True if `check_empty` is called for each AOTAutograd graph.
    """

    def __init__(
        self,
        modules: Mapping[int, str],
        options: Mapping[str, Any] | None = None,
        *,
        sees_aot: bool = True,
    ) -> None:
        self._modules = modules
        self._options = dict(options or {})
        self._sees_aot = sees_aot
        self._settings = torch_private.cache_settings()
        self._off = torch_private.caches_switched_off()
        self._kept: list[_KeptGraph] = []
        # Kept graphs with an AOTAutograd graph without ops, by index; True if it is the backward.
        self._empty: dict[int, bool] = {}

    def keep(self, gm: fx.GraphModule, example_inputs: list[Any]) -> None:
        """Store a Dynamo graph in its current state."""
        trains = trains_with(example_inputs)
        inputs = [
            node.meta.get("example_value", node.meta.get("val"))
            for node in gm.graph.nodes
            if node.op == "placeholder"
        ]
        self._kept.append(_KeptGraph(copied(gm), inputs, trains))

    def check_empty(self, gm: fx.GraphModule, *, backward: bool) -> None:
        """Note if an AOTAutograd graph, made from the last kept graph, contains no op."""
        if not _has_op(gm):
            self._empty.setdefault(len(self._kept) - 1, backward)

    def find(self) -> tuple[CacheBypass, ...]:
        """Return what AOTAutograd's cache refuses in each graph.

        If the caches are off now, or were when this object was created, that is the only reason.
        """
        bypasses = []
        with self._settings(self._options):
            setting = self._off or torch_private.caches_switched_off()
            for number, kept_graph in enumerate(self._kept):
                suffix = "" if len(self._kept) == 1 else f"_{number}"
                ops = (
                    [RefusedOp("", SWITCHED_OFF + setting)]
                    if setting
                    else self._refused_ops(number, kept_graph)
                )
                for op in ops:
                    kind = "backward" if op.reason == NO_OP_BACKWARD else "forward"
                    bypasses.append(describe_bypass(kind + suffix, op))
        return tuple(bypasses)

    def _refused_ops(self, number: int, kept_graph: _KeptGraph) -> Sequence[RefusedOp]:
        """Return the ops that make a kept graph uncacheable, or its last op if a part is empty."""
        gm, inputs, _ = kept_graph
        refused = describe_refused(torch_private.why_uncacheable(gm, inputs), self._modules)
        if refused:
            return refused
        empty = self._empty if self._sees_aot else _find_empty_part(number, kept_graph)
        if number not in empty:
            return []
        reason = NO_OP_BACKWARD if empty[number] else NO_OP
        return [RefusedOp("", reason, *_locate_last_op(gm, self._modules))]


def _has_op(gm: fx.GraphModule) -> bool:
    """Return True if a graph calls anything."""
    return any(node.op.startswith("call_") for node in gm.graph.nodes)


def _locate_last_op(gm: fx.GraphModule, modules: Mapping[int, str]) -> tuple[Any, ...]:
    """Return the module and the line of a graph's last op; () if it has none."""
    for node in reversed(gm.graph.nodes):
        if node.op.startswith("call_"):
            (op,) = describe_refused([torch_private.RefusedNode(node, "")], modules)
            return op.module, op.source
    return ()


class _SplitSeen(Exception):
    """Raised to stop AOTAutograd once it has split forward and backward."""


def _find_empty_part(number: int, kept_graph: _KeptGraph) -> dict[int, bool]:
    """Return the graph's number, and True for its backward, if AOTAutograd makes one without ops.

    The result is empty if both forward and backward have ops.
    """
    calls = {node.target for node in kept_graph.gm.graph.nodes if node.op.startswith("call_")}
    if len(calls) > _TRIVIAL:
        return {}
    empty: list[bool] = []

    def compiled(gm: fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        """Look at a graph without a backward, as its compiler."""
        empty.append(not _has_op(gm))
        raise _SplitSeen

    def split(joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Look at a forward and its backward, as the partitioner."""
        parts = torch_private.get("min_cut_partition")(joint, *args, **kwargs)
        empty.extend(not _has_op(part) for part in parts)
        raise _SplitSeen

    compilers = {"fw_compiler": compiled, "inference_compiler": compiled, "partition_fn": split}
    with (
        contextlib.suppress(_SplitSeen),
        torch.set_grad_enabled(kept_graph.trains),
        torch_private.get("functorch_config").patch(enable_autograd_cache=False),
    ):
        torch_private.aot_autograd(**compilers)(copied(kept_graph.gm), kept_graph.inputs)
    return {number: empty.index(True) > 0} if True in empty else {}  # the forward is first
