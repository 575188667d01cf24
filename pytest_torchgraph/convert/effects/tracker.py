"""Side effects of the nodes of one fx graph, and the order that they impose (`Node.after`).

`schema` and `by_name` say which arguments a call writes, and which one its result is a view of;
`aliasing` says which node wrote a storage last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.fx

from ...graph.model import Effect, Ref
from ..node_meta import COMMUNICATES
from . import by_name, schema
from .aliasing import Storages


class EffectTracker:
    """Follows storages through the nodes of a graph, which are added in their order.

    A storage is known by the name of the first node that has its value there.

    Args:
        names: the name of each node, to be there when the node is added.
    """

    def __init__(self, names: Mapping[torch.fx.Node, str]):
        self._names = names
        self._storages: Storages[str] = Storages()
        self._storage_of: dict[torch.fx.Node, str] = {}

    def add_input(self, node: torch.fx.Node) -> None:
        """Add a placeholder, which has a storage of its own."""
        name = self._names[node]
        self._storages.define(name, [name])
        self._storage_of[node] = name

    def add_call(self, node: torch.fx.Node) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """Add any other node: its effects, and the writes that it must come after."""
        name = self._names[node]
        args, kwargs = tuple(node.args), dict(node.kwargs)
        operands = [
            (self._names[operand], self._storage_of[operand])
            for operand in node.all_input_nodes
            if operand in self._storage_of
        ]
        after = tuple(Ref(writer) for writer in self._storages.after(operands))
        writes = [value for value in by_name.node_writes(node) if value in self._storage_of]
        source = self._aliased(node, args, writes)
        self._storage_of[node] = self._storage_of[source] if source is not None else name
        self._storages.define(name, [self._storage_of[node]])
        effects: list[Effect] = []
        for value in writes:
            storage = self._storage_of[value]
            effects.append(Effect("mutates", Ref(self._storages.owner[storage])))
            self._storages.write(name, storage)
        effects += [Effect(kind) for kind in schema.kinds(node.target, args, kwargs)]
        if node.meta.get(COMMUNICATES):
            effects.append(Effect("communicates"))
        if by_name.node_draws(node):
            effects.append(Effect("random"))
        return tuple(dict.fromkeys(effects)), after

    def _aliased(
        self, node: torch.fx.Node, args: tuple[Any, ...], writes: list[torch.fx.Node]
    ) -> torch.fx.Node | None:
        """The operand whose storage the result shares: one that is written, or viewed."""
        aliases = schema.facts(node.target).aliases
        shared: list[Any] = writes or [args[i] for i in aliases if i < len(args)]
        if not shared and args and by_name.is_view(node):
            shared = [args[0]]
        return next((value for value in shared if value in self._storage_of), None)
