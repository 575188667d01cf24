"""The difference of graphs as values: `GraphDiff`, `Finding`, `Place`, `Change`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..cost.cost import UNKNOWN, Cost
from ..equality.numbered_graph import runs_differ
from ..model import Graph, Node, Source
from ..module_paths import common_path
from ..text.format import format_node

if TYPE_CHECKING:
    from .origins import Origins

ChangeKind = Literal["added", "removed", "changed", "rewired"]
JSON_VERSION = 1
"""The version of `GraphDiff.to_json`."""
FILE_LISTS = ("compared", "changed", "added", "removed", "renamed")
"""The attributes of `FilesDiff` that list files."""
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
class Identity:
    """Tokens by which findings of several comparisons are known to be one edit; "" for none.

    Of the graphs nothing but these tokens is left in another process: they are texts, the same in
    every process.

    Attributes:
        edits: everything that the edit did as seen from its module, see `keys`, and the numbers of
            the modules in this one: in a layer the edit of its third module is not that of its
            first. One in common is enough.
        line: the line of the user's code, if known, and which ops came and went there.
        rewrite: one op was replaced by the same ones wherever it was: none of it is left.
        release: which ops came and went; used only between releases of torch.
        where: the nodes that were taken away or changed, by name, and which ops came and went:
            alike also where the surroundings, which `edits` contains, differ, as in training and
            inference. Used only where no comparison has two of these.
    """

    edits: tuple[str, ...] = ()
    line: str = ""
    rewrite: str = ""
    release: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One edit, however many places it touches: the same edit in twelve layers has twelve.

    An edit that several files have is one finding with the places of all.

    Attributes:
        places: where the edit is found, at least one, in the order of the graphs; none if it was
            read from JSON.
        summary: what happened, where it is no matter of single nodes.
        of_graph: whether it is about a graph as a whole, that came, went, or ran another number of
            times.
        modules: the paths of the modules that came or went, in the order of `places`, one for each;
            () of every other edit.
        like: paths of modules that were there before and are still, and that these are like, each
            one once; () where none is.
        files: the files that have the edit, relative to the directories that were compared; of two
            files the name of the new one; () if no files were compared.
        ranks: the ranks that have it, ascending; `None` if no ranks were compared.
        identity: by what the same edit is known in other comparisons; see `joining`.
        costs: what `cost` is read from.
        data: its plain data, if they were read from JSON or joined.
    """

    places: tuple[Place, ...]
    summary: str = ""
    of_graph: bool = False
    modules: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    identity: Identity = field(default=Identity(), repr=False, compare=False)
    costs: Callable[[], Cost] = field(default=_unknown, repr=False, compare=False)
    data: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

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

    def to_json(self) -> dict[str, Any]:
        """Return the finding in words, as plain data of bounded size.

        The keys: `sign`, of the kind of change, see `SIGNS`; `what` the edit did, as
        `aten.gelu -> aten.relu`; `where`, its modules abridged, and `modules`, the first ones;
        `places`, their number; `cost`, with `flops` and `saved_bytes`; `sources`, the lines of the
        user's code, if known; `before` and `after`, the primary node, "" if there is none; `files`;
        `ranks`; and `identity`, by which `joining.join` knows the same edit.
        """
        from .joining import finding_data

        return finding_data(self) if self.data is None else dict(self.data)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """Return the finding that `to_json` gave the data of, without its nodes."""
        identity, ranks = data["identity"], data["ranks"]
        cost = Cost(**data["cost"])
        return cls(
            (),
            summary=data["what"],
            files=tuple(data["files"]),
            ranks=None if ranks is None else tuple(ranks),
            identity=Identity(**{**identity, "edits": tuple(identity["edits"])}),
            costs=lambda: cost,
            data=data,
        )

    def to_text(self, limit: int = 4) -> str:
        """This finding in a few lines: places, before, after, what else, cost, what follows.

        The nodes are those of the first place, and what follows is counted over all places.

        Args:
            limit: how many further nodes, and how many consequences, are listed.
        """
        from .joining import finding_lines
        from .words import finding_text

        return finding_text(self, limit) if self.places else "\n".join(finding_lines([self]))

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
class GraphPair:
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
class FilesDiff:
    """The files that were compared, by their paths relative to the directories.

    Attributes:
        compared: the files that both sides have.
        changed: those of them whose graphs or op counts differ.
        added: the files that only the new side has.
        removed: the files that only the old side has.
        renamed: files whose texts differ and whose graphs do not: in names, strides or devices.
        unreadable: maps a file that cannot be read or is malformed, on either side, to the reason.
        counts: maps files, of which one holds op counts alone, to the lines that differ.
        releases: maps files that were captured by different releases of torch to these.
        of_directories: True unless two files were named.
    """

    compared: tuple[str, ...]
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    releases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    of_directories: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class GraphDiff:
    """The difference of two graphs, captures, ranks, files or directories; false if there is none.

    Attributes:
        findings: one for each edit with all its places, in the order of the graph; of directories
            those in most files first.
        graphs: the raw lists, for each pair of graphs that differ.
        files: the files that were compared; `None` if none were.
        parts: of ranks, each class of ranks whose graphs are equal on either side, and its
            difference, if there is one.
        origins: which graphs and nodes correspond; `None` for ranks, whose `parts` know it, and for
            directories.
    """

    findings: tuple[Finding, ...]
    graphs: tuple[GraphPair, ...] = ()
    files: FilesDiff | None = None
    parts: tuple[tuple[tuple[int, ...], GraphDiff], ...] = field(default=(), compare=False)
    origins: Origins | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        f = self.files
        return bool(self.findings or (f and (f.added or f.removed or f.counts or f.unreadable)))

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
        graphs are counted last: `1 edit: aten.relu removed in fc; 1 graph added`. Of directories
        the files are counted: `14 of 200 files differ by 1 cause; 1 file added`.
        """
        from .words import diff_heading

        return diff_heading(self)

    def to_text(self, limit: int | None = 10) -> str:
        """All findings as text, below the ranks and with the files that have them.

        Args:
            limit: how many findings are listed, and how many of the other files; `None` for all.
        """
        from .words import diff_text

        return diff_text(self, limit)

    def to_json(self, limit: int | None = None) -> dict[str, Any]:
        """Return the difference as plain data: the one form in which it is sent and stored.

        The keys: `version`, counted up if a key changes its meaning or goes; `heading`; `findings`,
        see `Finding.to_json`; `left`, the number of findings that `limit` leaves out; and `files`,
        with the attributes of `FilesDiff`, `None` if no files were compared.

        Args:
            limit: the number of findings that are listed; `None` for all.
        """
        files = self.files
        return {
            "version": JSON_VERSION,
            "heading": self.heading(),
            "findings": [finding.to_json() for finding in self.findings[:limit]],
            "left": len(self.findings[limit:]) if limit is not None else 0,
            "files": None
            if files is None
            else {
                **{name: [*getattr(files, name)] for name in FILE_LISTS},
                "unreadable": dict(files.unreadable),
                "counts": {file: [*lines] for file, lines in files.counts.items()},
                "releases": {file: [*pair] for file, pair in files.releases.items()},
            },
        }

    def __repr__(self) -> str:
        return f"<GraphDiff: {self.heading()}>"

    def __str__(self) -> str:
        # Without a difference heading and text are the same words, or the text is empty.
        return "\n".join(dict.fromkeys(filter(None, (self.heading(), self.to_text()))))


def ops_of(changes: Iterable[Change]) -> list[Change]:
    """The changes worth a line: without projections and without the inputs that were derived."""
    return [
        change for change in changes if change.node.is_call and change.node.op != "operator.getitem"
    ]
