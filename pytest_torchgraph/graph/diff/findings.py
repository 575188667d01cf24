"""The difference of graphs as values: `GraphDiff`, `Finding`, `Place`, `Change`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...words import counted
from ..cost.cost import UNKNOWN, Cost
from ..equality.common import runs_differ
from ..model import Graph, Node, Source
from ..module_paths import common_path
from ..text.format import format_node
from .identity import Identity

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
        renamed: the old and the new names of its operands, if both nodes print alike: `%mul` may be
            another value now.
    """

    kind: ChangeKind
    graph: str
    before: Node | None
    after: Node | None
    renamed: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    @property
    def node(self) -> Node:
        """The node as it is now or, where it is gone, as it was."""
        node = self.after or self.before
        assert node is not None
        return node

    def __str__(self) -> str:
        return f"{SIGNS[self.kind]} {format_node(self.node)}"


@dataclass(frozen=True, slots=True)
class Place:
    """One place that an edit touched, and what followed from it elsewhere.

    Attributes:
        module: the innermost module path common to the ops of the edit in this place, "" at the
            top; of modules that came or went, the module's. A shared module that is called twice
            has two places of one path.
        graph: name of the graph that was edited.
        changes: the nodes of the edit itself, the primary one first.
        consequences: what follows from it: in the backward of an edited forward, and in what reads
            an op that was moved to another place.
    """

    module: str
    graph: str
    changes: tuple[Change, ...]
    consequences: tuple[Change, ...] = ()


def _unknown() -> Cost:
    return UNKNOWN


@dataclass(frozen=True, slots=True)
class Finding:
    """One edit, however many places it touches: the same edit in twelve layers has twelve.

    Attributes:
        places: where the edit is found, at least one, in the order of the graphs.
        summary: what happened, where it is no matter of single nodes.
        of_graph: whether it is about a graph as a whole, that came, went, or ran another number of
            times.
        modules: the paths of the modules that came or went, in the order of `places`, one for each;
            () of every other edit.
        like: paths of modules that were there before and are still, and that these are like, each
            one once; () where none is.
        costs: what `cost` is read from.
        identity: by what the same edit is known in other comparisons; see `causes`.
    """

    places: tuple[Place, ...]
    summary: str = ""
    of_graph: bool = False
    modules: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    identity: Identity = field(default=Identity(), repr=False, compare=False)
    costs: Callable[[], Cost] = field(default=_unknown, repr=False, compare=False)

    @property
    def cost(self) -> Cost:
        """What the edit costs: after minus before, in all places, with what follows from it.

        FLOPs are those of the forward and of the backward, saved bytes those that the forward keeps
        (see `Capture.flops` and `.saved_bytes`), each as often as its graph runs. Over all findings
        of a difference they sum up to what the graphs of its second side cost more. A figure is
        None where it is not known: of graphs whose level does not tell it, of sizes that are
        symbols, of ops without a formula, of values that are saved because of one edit or of
        another; FLOPs also where torch is not loaded, as on the command line.
        """
        return self.costs()

    @property
    def changes(self) -> tuple[Change, ...]:
        """The nodes of the edit in its first place, the primary one first."""
        return self.places[0].changes

    @property
    def consequences(self) -> tuple[Change, ...]:
        """What follows from the edit in its first place."""
        return self.places[0].consequences

    @property
    def kind(self) -> ChangeKind:
        """The kind of the primary change; "added" or "removed" of modules that came or went."""
        return self.changes[0].kind

    @property
    def graph(self) -> str:
        """The name of the graph that was edited, in the first place."""
        return self.places[0].graph

    @property
    def before(self) -> Node | None:
        """The primary node of the first place as it was."""
        return self.changes[0].before

    @property
    def after(self) -> Node | None:
        """The primary node of the first place as it is."""
        return self.changes[0].after

    @property
    def module(self) -> str:
        """Module path of the primary node of the first place."""
        return self.changes[0].node.module

    @property
    def source(self) -> Source | None:
        """The user's line of the primary node, where one is known: stored graphs have none."""
        return self.changes[0].node.source

    def to_text(self, limit: int = 4) -> str:
        """This finding in a few lines: places, before, after, what else, cost, what follows.

        The nodes are those of the first place, and what follows is counted over all places.

        Args:
            limit: how many further nodes, and how many consequences, are listed.
        """
        from .words import finding_text

        return finding_text(self, limit)

    def __str__(self) -> str:
        return self.to_text()


def one_place(
    changes: Iterable[Change],
    summary: str = "",
    of_graph: bool = False,
    consequences: Iterable[Change] = (),
) -> Finding:
    """A finding with one place.

    Args:
        changes: the nodes of the edit, the primary one first; at least one.
        summary, of_graph: see `Finding`.
        consequences: see `Place`.
    """
    changes = tuple(changes)
    place = Place(_module(changes), changes[0].graph, changes, tuple(consequences))
    return Finding((place,), summary, of_graph)


def _module(changes: Sequence[Change]) -> str:
    ops = ops_of(changes)
    return common_path(change.node.module for change in ops or changes)


@dataclass(frozen=True, slots=True)
class PairDiff:
    """The raw lists for one pair of graphs; one of the two is None where a graph came or went.

    All lists are empty if the graphs differ in the number of their runs alone.
    """

    before: Graph | None
    after: Graph | None
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changed: tuple[tuple[Node, Node], ...] = ()
    rewired: tuple[tuple[Node, Node], ...] = ()

    @property
    def runs(self) -> tuple[int, int] | None:
        """How often both ran, if both know it and the numbers differ; else None."""
        old, new = self.before, self.after
        if old is None or new is None or not runs_differ(old, new):
            return None
        return old.runs, new.runs


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """What distinguishes two graphs, or two captures; false where nothing does.

    Attributes:
        findings: one for each edit with all its places, in the order of the graph.
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
        """The edits and their places counted and named, in one line.

        `1 edit in 12 places: aten.gelu -> aten.relu in encoder.layer.{0 … 11}.act`; of modules that
        came or went `1 module added: encoder.layer.12, like encoder.layer.11 (118 ops)`. Whole
        graphs are counted behind: `1 edit: aten.relu removed in fc; 1 graph added`.
        """
        from .headings import heading

        return heading(self.findings)

    def to_text(self, limit: int = 10) -> str:
        """All findings as text, at most `limit` of them in full."""
        shown = [
            finding.to_text(limit=4 if len(self.findings) <= 3 else 1)
            for finding in self.findings[:limit]
        ]
        if len(self.findings) > limit:
            shown.append(f"... and {counted(len(self.findings) - limit, 'more finding')}")
        return "\n".join(shown) or "no difference"

    def __str__(self) -> str:
        return f"{self.heading()}\n{self.to_text()}"


def ops_of(changes: Iterable[Change]) -> list[Change]:
    """The changes worth a line: without projections and without the inputs that were derived."""
    return [
        change for change in changes if change.node.is_call and change.node.op != "operator.getitem"
    ]
