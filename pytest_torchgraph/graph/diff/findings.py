"""The difference of graphs as values: `GraphDiff`, `Finding`, `Place`, `Change`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..cost import UNKNOWN, Cost
from ..equality import runs_differ
from ..model import Graph, Node, Source
from ..module_paths import common_path
from ..text import format_node
from .rules import RULES, Reason

if TYPE_CHECKING:
    from ..events import GraphBreak
    from .origins import Origins

ChangeKind = Literal["added", "removed", "changed", "rewired"]
SIDES: tuple[ChangeKind, ChangeKind] = ("removed", "added")
"""Kinds of what only the first and what only the second of two sides has."""
JSON_VERSION = 2
"""The version of `GraphDiff.to_json`."""
FILE_LISTS = ("compared", "changed", "added", "removed", "renamed")
"""The attributes of `FilesDiff` that list files."""
MODEL = "the model itself"
"""Text for an edit in the `forward` of the captured model."""
SIGNS: dict[ChangeKind, str] = {"added": "+", "removed": "-", "changed": "~", "rewired": ">"}


@dataclass(frozen=True, slots=True)
class Change:
    """One node that differs.

    Attributes:
        kind: "added", "removed", "changed" (a different op, constant, shape or dtype in the same
            place) or "rewired" (the same op on a different operand).
        graph: name of the graph that contains the node.
        before, after: the node in the old and in the new graph; `before` is `None` if the node was
            added, `after` is `None` if it was removed.
        renamed: pairs of old and new names of operands, of those that have another name now. For
            example, the old `%mul` may be the new `%mul.1`, and `%mul` another value.
        within: the graphs of `before` and `after`, as they were compared; () if unknown.
    """

    kind: ChangeKind
    graph: str
    before: Node | None
    after: Node | None
    renamed: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    within: tuple[Graph, ...] = field(default=(), repr=False, compare=False)

    @property
    def node(self) -> Node:
        """The node in the new graph; for a removed node, the node in the old graph."""
        node = self.after or self.before
        assert node is not None
        return node

    def __str__(self) -> str:
        return f"{SIGNS[self.kind]} {format_node(self.node)}"


@dataclass(frozen=True, slots=True)
class Place:
    """One place of an edit, and its consequences elsewhere.

    Attributes:
        module: the innermost module path common to the ops of the edit in this place; "" at the
            top. For an added or removed module, the path of this module. A shared module that is
            called twice has two places with the same path.
        graph: name of the graph that was edited.
        changes: the nodes of the edit itself, the primary one first.
        consequences: the nodes that differ because of the edit. They are in the backward of an
            edited forward, or they use an op that was moved.
        reasons: the uses of rules that joined the changes, and attached the consequences.
    """

    module: str
    graph: str
    changes: tuple[Change, ...]
    consequences: tuple[Change, ...] = ()
    reasons: tuple[Reason, ...] = field(default=(), repr=False, compare=False)


Recomputations = tuple[tuple[str, int, int], ...]
"""Ops, and how often the backward recomputes each, before and after."""


def digest(*parts: Hashable) -> str:
    """Return a token for these values that is equal in every process."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Identity:
    """Tokens that identify the same edit in several comparisons; "" for a missing token.

    The graphs themselves are not available in another process. The tokens are texts that are equal
    in every process.

    Attributes:
        edits: everything that the edit did, relative to its layer (see `keys`), with the numbers of
            modules inside the layer. So an edit of the third module of a layer differs from an edit
            of the first. Two findings match if they share one of these tokens.
        line: the line of the user's code, if known. Two findings match if they share this token and
            `op`.
        op: the constants of the first op, and the ops added and removed.
        rewrite: the ops added and removed, if no removed op is left in the new graphs.
        release: the ops added and removed; used only between releases of torch.
        where: the removed or changed nodes, by name, and the ops added and removed. Unlike `edits`,
            it does not depend on the surroundings, which can differ between training and inference.
            Used only if no comparison has two findings with the same `where`.
    """

    edits: tuple[str, ...] = ()
    line: str = ""
    op: str = ""
    rewrite: str = ""
    release: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One edit, with all its places: the same edit in twelve layers is one finding.

    An edit found in several files is one finding with the places of all files.

    Methods raise `TypeError` for an argument of a wrong type, and `ValueError` for a wrong value.

    Attributes:
        places: the places of the edit, at least one, in the order of the graphs; empty if the
            finding was read from JSON.
        summary: a description of the edit, if it concerns more than single nodes.
        details: all parts of a summary that has only the first of them.
        of_graph: True if the finding is about a whole graph that was added or removed, or whose run
            count changed.
        modules: the paths of added or removed modules, one for each of `places`, in that order; ()
            for every other edit.
        like: paths of kept modules that the added or removed modules resemble, without duplicates;
            () if there are none.
        files: the files that have the edit, relative to the compared directories. If two files were
            compared, the name of the new file; () if no files were compared.
        ranks: the ranks that have the edit, ascending; `None` if no ranks were compared.
        class_name: class of the module of all places; "" if it is unknown, or if they differ.
        identity: tokens that identify the same edit in other comparisons; see `joining`.
        costs: computes `cost`.
        recomputations: computes `recomputed`.
        data: the plain data of the finding, if it was read from JSON or joined.
        graph_break: the graph break that only one side has; `None` for all other findings. Such a
            finding has one place for each place where the break divides the step, `changes` is
            `()`, and `before` and `after` are `None`. In a break of a stored graph, `line` is 0,
            and `file`, `reason` and `code` are "".
        of_cut: the kind of a finding about the division of a step; `None` for all others.
        gradients: the gradients that only one side has, in words, such as `gradient of fc.weight
            removed`.
        recompile: the `Recompile` that only one of two watches or logs has; `None` for all other
            findings. `changes` is then `()`.
    """

    places: tuple[Place, ...]
    summary: str = ""
    of_graph: bool = False
    modules: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    class_name: str = field(default="", repr=False, compare=False)
    identity: Identity = field(default=Identity(), repr=False, compare=False)
    costs: Callable[[], Cost] = field(default=lambda: UNKNOWN, repr=False, compare=False)
    recomputations: Callable[[], Recomputations] = field(default=tuple, repr=False, compare=False)
    data: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    graph_break: GraphBreak | None = None
    of_cut: ChangeKind | None = None
    recompile: Any = field(default=None, compare=False)
    details: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()

    @property
    def cost(self) -> Cost:
        """The cost of the edit: after minus before, over all places and their consequences.

        FLOPs count the forward and the backward; saved bytes count the activations that the forward
        saves (see `Capture.flops` and `.saved_bytes`). Both are multiplied by the run count of
        their graph. The costs of all findings of a difference sum up to the cost of the second side
        minus the cost of the first.

        A figure is `None` if unknown: the level of the graph does not record it, a size is
        symbolic, an op has no formula, or a value may be saved because of either of two edits.
        FLOPs are also `None` if torch is not loaded, for example on the command line.
        """
        return self.costs()

    @property
    def recomputed(self) -> Recomputations:
        """Ops of the edit that the backward recomputes more or less often than before.

        Each entry has the op, its count in the whole step before, and its count after. See
        `Capture.recomputed`.
        """
        return self.recomputations()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The names of the rules that joined the changes and attached the consequences.

        Those of all places, in the order of the documented table; `()` for an edit of one node
        without consequences.
        """
        if self.data is not None:
            return tuple(self.data.get("reasons") or ())
        names = {reason.rule for place in self.places for reason in place.reasons}
        return tuple(rule.name for rule in RULES if rule.name in names)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The nodes of the edit in its first place, the primary one first."""
        return self.places[0].changes

    @property
    def consequences(self) -> tuple[Change, ...]:
        """The consequences of the edit in its first place."""
        return self.places[0].consequences

    @property
    def kind(self) -> ChangeKind:
        """The kind of the primary change; "added" or "removed" for modules and graph breaks."""
        return self.of_cut or self.changes[0].kind

    @property
    def graph(self) -> str:
        """The name of the graph that was edited, in the first place."""
        return self.places[0].graph

    @property
    def before(self) -> Node | None:
        """The primary node of the first place in the old graph; `None` if it was added."""
        return self.changes[0].before if self.changes else None

    @property
    def after(self) -> Node | None:
        """The primary node of the first place in the new graph; `None` if it was removed."""
        return self.changes[0].after if self.changes else None

    @property
    def module(self) -> str:
        """Module path of the primary node of the first place."""
        return self.changes[0].node.module if self.changes else self.places[0].module

    @property
    def source(self) -> Source | None:
        """The user's source line of the primary node; `None` if unknown, as in a stored graph."""
        if self.changes:
            return self.changes[0].node.source
        event = self.graph_break or self.recompile
        if event is None or not event.file:
            return None
        return Source(event.file, event.line, getattr(event, "code", ""), event.function)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data of bounded size, with the nodes as text.

        The keys:

        - `sign`: the sign of the kind of change; see `SIGNS`.
        - `what`: the edit, such as `aten.gelu -> aten.relu`.
        - `where`, `modules`: the modules of the edit, abridged, and the first of them as a list.
        - `places`: the number of places.
        - `cost`: with `flops` and `saved_bytes`.
        - `recomputed`: see the attribute; missing if it is empty.
        - `sources`: the lines of the user's code, if known.
        - `before`, `after`: the primary node in the old and the new graph; "" if there is none. For
          added or removed modules, the first node outside them.
        - `with`: the first further lines, each with its sign: orders and outputs, then ops, then
          inputs, then the nodes of bodies and of whole graphs; the last line counts the rest.
        - `form`: a digest of all that changed, however little of it is in these texts.
        - `forms`: if a finding of several files did not change the same in all of them, each form:
          `before`, `after` and `with`, whole if graphs were compared here, and `file`, the first
          file that has it; missing otherwise.
        - `reasons`: see the attribute.
        - `files`, `ranks`: see the attributes.
        - `identity`: the tokens by which `joining.merge_edits` matches edits.
        """
        from .joining import finding_data

        if self.data is None:
            return finding_data(self)
        ranks = None if self.ranks is None else [*self.ranks]
        return {**self.data, "files": [*self.files], "ranks": ranks}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """Return the finding that `to_json` converted to data, without its nodes.

        Raises:
            TypeError, KeyError, IndexError: for other data.
        """
        identity, ranks = data["identity"], data["ranks"]
        cost = Cost(**data["cost"])
        return cls(
            (),
            summary=data["what"],
            files=tuple(data["files"]),
            ranks=None if ranks is None else tuple(ranks),
            identity=Identity(**{**identity, "edits": tuple(identity["edits"])}),
            costs=lambda: cost,
            recomputations=lambda: tuple(map(tuple, data.get("recomputed") or ())),
            data=data,
        )

    def to_text(self, limit: int = 4, *, why: bool = False) -> str:
        """Return the finding as text: places, before, after, other nodes, cost, consequences.

        The nodes are those of the first place. Consequences are counted over all places.

        Args:
            limit: maximum number of further nodes, and of consequences, to list.
            why: True to list the `reasons`, each with the two nodes of up to `limit` uses.
        """
        from .joining import finding_lines
        from .words import finding_text, why_lines

        lines = [finding_text(self, limit)] if self.places else [*finding_lines([self])]
        return "\n".join([*lines, *(why_lines(self, limit) if why else ())])

    def __str__(self) -> str:
        return self.to_text()


def one_place(
    changes: Iterable[Change],
    summary: str = "",
    of_graph: bool = False,
    consequences: Iterable[Change] = (),
    details: Iterable[str] = (),
) -> Finding:
    """Return a finding with one place.

    Args:
        changes: the nodes of the edit, the primary one first; at least one.
        summary, of_graph, details: see `Finding`.
        consequences: see `Place`.
    """
    changes = tuple(changes)
    place = Place(_common_module(changes), changes[0].graph, changes, tuple(consequences))
    return Finding((place,), summary, of_graph, details=tuple(details))


def _common_module(changes: Sequence[Change]) -> str:
    """Return the innermost module around the ops of an edit; around its nodes if it has no ops."""
    ops = ops_of(changes)
    return common_path(change.node.module for change in ops or changes)


@dataclass(frozen=True, slots=True)
class GraphPair:
    """The raw lists for one pair of graphs. `before` or `after` is `None` for a missing graph.

    All lists are empty if the graphs differ only in their run counts.
    """

    before: Graph | None
    after: Graph | None
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changed: tuple[tuple[Node, Node], ...] = ()
    rewired: tuple[tuple[Node, Node], ...] = ()

    @property
    def runs(self) -> tuple[int, int] | None:
        """Run counts of both graphs; `None` if they are equal or if either is unknown."""
        old, new = self.before, self.after
        if old is None or new is None or not runs_differ(old, new):
            return None
        return old.runs, new.runs

    def changes(self) -> Iterator[tuple[ChangeKind, Node | None, Node | None]]:
        """Yield all entries of the lists, each with its kind and its old and new node."""
        yield from (("added", None, node) for node in self.added)
        yield from (("removed", node, None) for node in self.removed)
        yield from (("changed", before, after) for before, after in self.changed)
        yield from (("rewired", before, after) for before, after in self.rewired)


@dataclass(frozen=True, slots=True)
class FilesDiff:
    """The files that were compared, by their paths relative to the directories.

    Attributes:
        compared: the files that both sides have.
        changed: the compared files whose graphs or op counts differ.
        added: the files that only the new side has.
        removed: the files that only the old side has.
        renamed: files with equal graphs whose texts differ, in names, strides or devices.
        unreadable: maps each file that is unreadable or malformed, on either side, to the reason.
        counts: maps each file that has only op counts, on either side, to the lines that differ.
        releases: maps each file captured with two different releases of torch to these releases.
        of_directories: False if two files were compared instead of directories.
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

    Methods raise `TypeError` for an argument of a wrong type, and `ValueError` for a wrong value.

    Attributes:
        findings: one finding for each edit with all its places, in the order of the graph. For
            directories, findings in the most files come first.
        graphs: the raw lists, for each pair of graphs that differ.
        files: the compared files; `None` if no files were compared.
        parts: for ranks, each class of ranks with equal graphs on both sides, and the difference of
            these ranks. Classes without a difference are left out.
        origins: the correspondence of graphs and nodes; `None` for directories and for ranks. For
            ranks, each of `parts` has its own origins.
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
        """All nodes with a different operand, old and new."""
        return tuple(nodes for pair in self.graphs for nodes in pair.rewired)

    def heading(self) -> str:
        """Return one line that counts and names the edits and their places.

        An example is `1 edit in 12 places: aten.gelu -> aten.relu in encoder.layer.{0 … 11}.act`.
        For added or removed modules: `1 module added: encoder.layer.12, like encoder.layer.11 (118
        ops)`. Whole graphs are counted last: `1 edit: aten.relu removed in fc; 1 graph added`. For
        directories, files are counted: `14 of 200 files differ by 1 cause; 1 file added`.
        """
        from .words import diff_heading

        return diff_heading(self)

    def to_text(self, limit: int | None = 10, *, why: bool = False) -> str:
        """Return all findings as text, grouped by ranks and with the files that have them.

        Args:
            limit: maximum number of findings, and of other files, to list; `None` for all.
            why: see `Finding.to_text`.
        """
        from .words import diff_text

        return diff_text(self, limit, why)

    def to_json(self, limit: int | None = None) -> dict[str, Any]:
        """Return the difference as plain data, the only format for sending and storing it.

        The keys:

        - `version`: incremented if a key is removed or changes its meaning.
        - `heading`: see `heading`.
        - `findings`: see `Finding.to_json`.
        - `left`: the number of findings that `limit` leaves out.
        - `files`: the attributes of `FilesDiff`, or `None` if no files were compared.

        Args:
            limit: maximum number of findings to list; `None` for all.
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
        # Without a difference, the text is empty or repeats the heading.
        return "\n".join(dict.fromkeys(filter(None, (self.heading(), self.to_text()))))


def sides_of(change: Change) -> list[tuple[int, Node]]:
    """Return the nodes of a change, each with its side: 0 in the old graph, 1 in the new one."""
    nodes = enumerate((change.before, change.after))
    return [(side, node) for side, node in nodes if node is not None]


def nodes_of_changes(changes: Iterable[Change]) -> list[Node]:
    """Return the nodes of changes, the old node of each change first."""
    return [node for change in changes for _, node in sides_of(change)]


def ops_of(changes: Iterable[Change]) -> list[Change]:
    """Return the changes of calls, without `getitem`. Inputs and outputs are left out."""
    return [
        change
        for change in changes
        if (node := change.node).is_call and node.op != "operator.getitem"
    ]
