"""The differing nodes of two matched graphs, and the edits that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...words import grouped, listed
from ..equality import NumberedGraph
from ..model import Node
from ..text import format_name, format_result
from .correspondence import Correspondence
from .findings import SIGNS, digest
from .union_find import UnionFind

NodeChangeKind = Literal["added", "removed", "changed", "rewired"]
NodeKey = tuple[Literal["a", "b"], int]
"""Key of a node: ("a", number) for an old node and its partner, ("b", number) for an added node."""


MAX_NAMES = 6
"""Maximum number of nodes to name that follow another one."""


class Join(NamedTuple):
    """Two nodes that belong to one edit.

    Attributes:
        rule: the rule; see `rules`.
        node, other: the nodes.
        reader: name of a node that takes both; "" if the rule needs none.
    """

    rule: str
    node: NodeKey
    other: NodeKey
    reader: str = ""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One differing node.

    Attributes:
        kind: the kind of change.
        before, after: number of the node in the old and in the new graph; -1 if it is missing.
    """

    kind: NodeChangeKind
    before: int
    after: int


class NodeChanges:
    """The changes of two matched graphs, and the edit that each change belongs to.

    Attributes:
        m: the correspondence of the nodes.
        a, b: the graphs.
        by_key: the change of each differing node.
        replaced: nodes without a partner that have the same slot and result as a node of the other
            graph without a partner.
        joins: the joined nodes.
        orders: the nodes that a node must follow, before and after, if they differ: effects, and
            beginnings of regions. A printed node shows only writes, which are left out.
        followers: the kept nodes that follow an added or removed node, as texts.
    """

    def __init__(self, matching: Correspondence):
        self.m = matching
        self.a: NumberedGraph = matching.a
        self.b: NumberedGraph = matching.b
        self.by_key: dict[NodeKey, NodeChange] = {}
        self.replaced: set[NodeKey] = set()
        self.joins: list[Join] = []
        self.orders: dict[NodeKey, tuple[list[str], list[str]]] = {}
        self.followers: dict[NodeKey, list[str]] = {}
        self._edits = UnionFind[NodeKey]()

    def key_of_old(self, i: int) -> NodeKey:
        """Return the key of a node of the old graph."""
        return ("a", i)

    def key_of_new(self, j: int) -> NodeKey:
        """Return the key of a node of the new graph."""
        i = self.m.backward[j]
        return ("b", j) if i == -1 else ("a", i)

    def key_of(self, change: NodeChange) -> NodeKey:
        """Return the key of a changed node."""
        return ("b", change.after) if change.before == -1 else ("a", change.before)

    def name_of(self, key: NodeKey) -> str:
        """Return the name of a node, in the new graph if it is there."""
        side, number = key
        if side == "a" and self.m.forward[number] != -1:
            side, number = "b", self.m.forward[number]
        return (self.a if side == "a" else self.b).nodes[number].name

    def kind_of(self, key: NodeKey) -> str:
        """Return the kind of change of a node; "" if the node does not differ."""
        change = self.by_key.get(key)
        return change.kind if change else ""

    def sign_of(self, key: NodeKey) -> str:
        """Return the sign of a node's change; "" if the node does not differ."""
        change = self.by_key.get(key)
        return SIGNS[change.kind] if change else ""

    def order_lines(self, edit: Iterable[NodeChange]) -> Iterator[str]:
        """Yield a line for each node of an edit that follows other effects, or is followed."""
        for part in edit if self.orders or self.followers else ():
            key = self.key_of(part)
            name = f"%{format_name(self.name_of(key))}"
            if followers := self.followers.get(key):
                rest = f" ({digest('followers', *followers)})" if len(followers) > MAX_NAMES else ""
                yield f"{name} is followed by {listed(followers, MAX_NAMES)}{rest}"
            old, new = (listed(side) or "nothing" for side in self.orders.get(key, ((), ())))
            if old != new:
                before = "" if part.kind == "added" else f", before: {old}"
                yield f"{name} follows {new}{before}"

    def module_of(self, key: NodeKey) -> str:
        """Return the module path of a node, in the old graph if the node has a partner."""
        side, number = key
        return (self.a if side == "a" else self.b).nodes[number].module

    def flag(self, kind: NodeChangeKind, i: int, j: int) -> None:
        """Record the change of a node, unless a change of this node is recorded already."""
        key = self.key_of_new(j) if i == -1 else self.key_of_old(i)
        self.by_key.setdefault(key, NodeChange(kind, i, j))

    def join(self, rule: str, key: NodeKey, other: NodeKey, reader: str = "") -> None:
        """Record that two nodes belong to one edit, and by which rule; see `Join`."""
        if self._edits.join(key, other):
            self.joins.append(Join(rule, key, other, reader))

    def edit_of(self, key: NodeKey) -> NodeKey:
        """Return the key that identifies the edit of a node."""
        return self._edits.find(key)

    def group_by_edit(self) -> dict[NodeKey, list[NodeChange]]:
        """Return the changes of each edit, by a key that identifies the edit."""
        return grouped((self._edits.find(key), change) for key, change in self.by_key.items())


def have_same_result(node: Node, other: Node) -> bool:
    """Return True if dtype and shape of two nodes are equal."""
    if node.result == other.result:
        return True
    return format_result(node.result) == format_result(other.result)
