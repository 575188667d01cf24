"""The difference of graphs as values and in words: `GraphDiff`, `Finding`, `Change`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..model import Graph, Node, Source
from ..text.format import format_node

ChangeKind = Literal["added", "removed", "changed", "rewired"]
SIGNS: dict[ChangeKind, str] = {"added": "+", "removed": "-", "changed": "~", "rewired": ">"}


@dataclass(frozen=True, slots=True)
class Change:
    """One node that differs.

    Attributes:
        kind: "added", "removed", "changed" (another op, constant, shape or dtype in the same
            place) or "rewired" (the same op on another operand).
        graph: name of the graph that it is in.
        before, after: the node in the old and in the new graph; None where there is none.
    """

    kind: ChangeKind
    graph: str
    before: Node | None
    after: Node | None

    @property
    def node(self) -> Node:
        """The node as it is now or, where it is gone, as it was."""
        node = self.after or self.before
        assert node is not None
        return node

    def __str__(self) -> str:
        return f"{SIGNS[self.kind]} {format_node(self.node)}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One edit: the connected nodes that it touched, and what followed from it elsewhere.

    Attributes:
        changes: the nodes of the edit itself, the primary one first.
        consequences: what follows from it: in the backward of an edited forward, for one.
        summary: what happened, where it is no matter of nodes.
        of_graph: whether it is about a graph as a whole, that came, went, or ran another number of
            times.
    """

    changes: tuple[Change, ...]
    consequences: tuple[Change, ...] = ()
    summary: str = ""
    of_graph: bool = False

    @property
    def kind(self) -> ChangeKind:
        """The kind of the primary change."""
        return self.changes[0].kind

    @property
    def graph(self) -> str:
        """The name of the graph that was edited."""
        return self.changes[0].graph

    @property
    def before(self) -> Node | None:
        """The primary node as it was."""
        return self.changes[0].before

    @property
    def after(self) -> Node | None:
        """The primary node as it is."""
        return self.changes[0].after

    @property
    def module(self) -> str:
        """Module path of the primary node."""
        return self.changes[0].node.module

    @property
    def source(self) -> Source | None:
        """The user's line of the primary node. Stored graphs have none, so a removal has none."""
        return self.changes[0].node.source

    def to_text(self, limit: int = 4) -> str:
        """This finding in a few lines: place, before, after, what else, what follows.

        Args:
            limit: how many further nodes, and how many consequences, are listed.
        """
        if self.summary:
            return f"{SIGNS[self.kind]} {self.summary}"
        change = self.changes[0]
        place = self.module or "(no module)"
        head = f"{SIGNS[self.kind]} {self.kind} in {place} [{self.graph}]"
        if self.source is not None:
            head += f"  {self.source}: {self.source.code}".rstrip(": ")
        lines = [head]
        if change.before is not None:
            lines.append(f"    before  {format_node(change.before)}")
        if change.after is not None:
            lines.append(f"    after   {format_node(change.after)}")
        lines += _listed("with   ", _ops(self.changes[1:]), limit)
        consequences = _ops(self.consequences)
        if consequences:
            places = ", ".join(dict.fromkeys(change.graph for change in consequences))
            lines.append(f"    follows in {places}: {_count(consequences)}")
            lines += _listed("       ", consequences, limit)
        elif self.consequences:
            places = ", ".join(dict.fromkeys(change.graph for change in self.consequences))
            lines.append(f"    follows in {places}: other values are saved")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


@dataclass(frozen=True, slots=True)
class PairDiff:
    """The raw lists for one pair of graphs; one of the two is None where a graph came or went.

    All lists of two eager graphs are empty where these differ in the number of their runs alone.
    """

    before: Graph | None
    after: Graph | None
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changed: tuple[tuple[Node, Node], ...] = ()
    rewired: tuple[tuple[Node, Node], ...] = ()

    @property
    def runs(self) -> tuple[int, int] | None:
        """How often both ran, where they ran eagerly, and not as often as each other; else None."""
        old, new = self.before, self.after
        if old is None or new is None or not (old.eager and new.eager) or old.runs == new.runs:
            return None
        return old.runs, new.runs


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """What distinguishes two graphs, or two captures; false where nothing does.

    Attributes:
        findings: one for each edit, in the order of the graph.
        graphs: the raw lists, for each pair of graphs that differ.
    """

    findings: tuple[Finding, ...]
    graphs: tuple[PairDiff, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.findings)

    @property
    def added(self) -> tuple[Node, ...]:
        """All nodes that only the new graphs have."""
        return tuple(node for pair in self.graphs for node in pair.added)

    @property
    def removed(self) -> tuple[Node, ...]:
        """All nodes that only the old graphs have."""
        return tuple(node for pair in self.graphs for node in pair.removed)

    @property
    def changed(self) -> tuple[tuple[Node, Node], ...]:
        """All nodes whose op, constants, shape or dtype differ, old and new."""
        return tuple(nodes for pair in self.graphs for nodes in pair.changed)

    @property
    def rewired(self) -> tuple[tuple[Node, Node], ...]:
        """All nodes that have another operand, old and new."""
        return tuple(nodes for pair in self.graphs for nodes in pair.rewired)

    def heading(self) -> str:
        """The findings counted, in one line: `1 op added, 2 changed in encoder.layer.7`.

        Whole graphs are counted behind the ops: `1 op changed in fc; 1 graph added`.
        """
        if not self.findings:
            return "no difference"
        ops = [finding for finding in self.findings if not finding.of_graph]
        graphs = [finding for finding in self.findings if finding.of_graph]
        where = _common_module([finding.module for finding in ops])
        parts = [_counted(ops, "op") + (f" in {where}" if where else "")] if ops else []
        return "; ".join([*parts, _counted(graphs, "graph")] if graphs else parts)

    def to_text(self, limit: int = 10) -> str:
        """All findings as text, at most `limit` of them in full."""
        shown = [
            finding.to_text(limit=4 if len(self.findings) <= 3 else 1)
            for finding in self.findings[:limit]
        ]
        if len(self.findings) > limit:
            shown.append(f"... and {len(self.findings) - limit} more findings")
        return "\n".join(shown) or "no difference"

    def __str__(self) -> str:
        return f"{self.heading()}\n{self.to_text()}"


def _ops(changes: Iterable[Change]) -> list[Change]:
    """The changes worth a line: without projections and without the inputs that were derived."""
    return [
        change for change in changes if change.node.is_call and change.node.op != "operator.getitem"
    ]


def _counted(findings: Sequence[Finding], noun: str) -> str:
    """How many findings of each kind there are: `2 ops added, 1 changed`."""
    counts = Counter(finding.kind for finding in findings)
    parts = [f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind]]
    first, _, rest = parts[0].partition(" ")
    parts[0] = f"{first} {noun if first == '1' else noun + 's'} {rest}"
    return ", ".join(parts)


def _count(changes: Sequence[Change]) -> str:
    counts = Counter(change.kind for change in changes)
    return ", ".join(f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind])


def _listed(word: str, changes: Sequence[Change], limit: int) -> list[str]:
    lines = [f"    {word} {change}" for change in changes[:limit]]
    if len(changes) > limit:
        lines.append(f"    {word} ... and {len(changes) - limit} more ({_count(changes[limit:])})")
    return lines


def _common_module(modules: Sequence[str]) -> str:
    paths = [module.split(".") for module in modules]
    common: list[str] = []
    for level in zip(*paths, strict=False):
        if len(set(level)) != 1:
            break
        common.append(level[0])
    return ".".join(common)
