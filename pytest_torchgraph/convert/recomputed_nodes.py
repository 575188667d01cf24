"""Which nodes of a compiled backward compute again what the forward has computed, and why."""

from __future__ import annotations

import torch.fx

from ..graph.model import RecomputedBy
from . import rng_states

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
        if rng_states.meta_of(node).get(_TAG) is not None:
            return "checkpoint"
        if rng_states.restores(node):  # which the partitioner makes for a copy, under a new name
            return "partitioner"
        stem = node.name
        for suffix in _SUFFIXES:
            stem = stem.removesuffix(suffix)
        return "partitioner" if stem in self._names else "formula"
