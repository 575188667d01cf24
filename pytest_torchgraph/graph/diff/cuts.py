"""Cuts that only one of two steps has, as findings, with all that follows from them.

A *cut* is a place where a step is divided into graphs. A graph break makes several cuts: a *direct*
cut at its line, and one in each caller of the broken function. `with_cuts` pairs the cuts of two
steps by the values that cross them, and makes a finding of each break whose cuts have no partner.
Its `_Follows` then decides which of the other findings follow from these breaks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import PurePath
from typing import NamedTuple

from ...words import counted, grouped
from ..cost import Cost, sum_of
from ..equality import ALIAS_OP, aliases_of
from ..equality import with_cuts as insert_cuts
from ..events import SKIPPED, GraphBreak
from ..model import Arg, Graph, Node, Ref, Symbol, TensorMeta, map_arg
from ..module_paths import common_path, common_prefix
from ..step import Boundary, InlinedStep, crossed
from ..text import format_arg
from .align import unmatched
from .findings import (
    MODEL,
    SIDES,
    Change,
    ChangeKind,
    Finding,
    GraphDiff,
    GraphPair,
    Identity,
    Place,
    digest,
    ops_of,
    sides_of,
)
from .origins import Origins
from .paths import abridged, holds
from .rules import CUT

COMPARABLE = ("aot", "dispatch")
"""Levels at which compiled ops are recorded as eager ops are."""
INACTIVE_DROPOUT = "aten.clone.default"
"""An inactive dropout in compiled code. In eager code it is no op."""
MOST_CUTS, MOST_CROSSING = 20, 50
"""Maximum number of cuts of a break that are listed, and of values that cross one of them."""


class _Cut(NamedTuple):
    """A cut of a step.

    Attributes:
        boundary: the cut.
        total: the sum of the digests of the values that cross it. A set of names for each cut would
            take quadratic time and memory.
        line: the values in words.
    """

    boundary: Boundary
    total: int
    line: str

    def keys(self) -> tuple[Hashable, Hashable, Hashable]:
        """Return values that the same cut has on two sides: its place and values, its place, and
        its values.
        """
        boundary = self.boundary
        # A cut in a caller, or after eager ops, has no place of its own.
        named = boundary.cut.direct and _kind(boundary.cut.graph_break)
        place = named, boundary.cut.direct and boundary.module, boundary.eager
        return (place, self.total), place, (self.total, boundary.eager)


def with_cuts(
    findings: Sequence[Finding], before: InlinedStep, after: InlinedStep, origins: Origins
) -> list[Finding]:
    """Return findings with one more for each graph break that only one of two steps has.

    What follows from a break becomes its consequence: the ops of its line, saved values and other
    backwards, and ops that are recorded otherwise because they run eagerly now.

    Args:
        findings: the findings of the inlined steps.
        before, after: the steps.
        origins: the correspondence of their nodes.
    """
    # The forward is the first graph of a step.
    names = next((names for old, new, names in origins.matched() if old and new), {})
    modules = {path for finding in findings for path in finding.modules}
    # A cut is the same if the same values cross it. Beside an edit, other values may cross; then a
    # cut is the same if its break has the same function, module and kind. So without an edit, the
    # second key, the place alone, is left out.
    stride = 1 if any(map(_is_edit, findings)) else 2
    of_sides = [*_cuts_of(before, names)], [*_cuts_of(after, {})]
    unpaired = [*map(_dividing, unmatched(of_sides, lambda cut: cut.keys()[::stride]))]
    back = {new: old for old, new in names.items()}
    sides: tuple[tuple[ChangeKind, InlinedStep, InlinedStep, Mapping[str, str]], ...] = (
        ("removed", before, after, names),
        ("added", after, before, back),
    )
    cuts: list[Finding] = []
    is_unnamed = False
    for own_cuts, (kind, own, other, partners) in zip(unpaired, sides, strict=True):
        of_breaks = _cuts_of_breaks(own_cuts, own, other, partners, modules)
        of_kind = list(_findings_of(of_breaks, kind))
        # The breaks of cuts can be unknown, and so have no finding.
        is_unnamed = is_unnamed or (bool(of_breaks) and not of_kind)
        cuts += of_kind
    # Without a break to name, the number of runs is the finding. Beside other findings, it is one
    # only if a cut has no other reason.
    if not cuts and findings:
        return [*findings, *(_divided_otherwise(before, after, True) if is_unnamed else ())]
    if not cuts:
        return _divided_otherwise(before, after, any(unpaired))
    follows = _Follows(before, after, unpaired, names)
    others = [finding for finding in findings if not follows.belongs(finding)]
    derived = [finding for finding in findings if follows.belongs(finding)]
    return [*_attach(cuts, derived, origins), *others]


def _cuts_of_breaks(
    cuts: Iterable[_Cut],
    own: InlinedStep,
    other: InlinedStep,
    partners: Mapping[str, str],
    modules: Iterable[str],
) -> list[_Cut]:
    """Return the cuts of a step that only a graph break explains.

    Args:
        cuts: the cuts that the other step lacks.
        own, other: the step, and the other step.
        partners: names in the other step.
        modules: the paths of added and removed modules.
    """
    before, after = _ops_around(own)
    of_breaks = []
    for cut in cuts:
        boundary = cut.boundary
        around = before[boundary.position], after[boundary.position]
        paths = [own.graphs[0].by_name[name].module for name in around if name]
        # Cuts inside an added module belong to the module, as its ops do. The names of a module at
        # a cut are not compared, so its ops must be there.
        is_of_module = any(
            holds(module, boundary.module) and any(holds(module, path) for path in paths)
            for module in modules
        )
        if not is_of_module and not _is_divided_too(boundary, around, other, partners):
            of_breaks.append(cut)
    return of_breaks


def _divided_otherwise(
    before: InlinedStep, after: InlinedStep, cut_elsewhere: bool
) -> list[Finding]:
    """Return the finding of steps that differ only in how they are divided or shared; [] if none.

    Args:
        before, after: the steps.
        cut_elsewhere: True if their cuts differ. If False, only the compiled graphs that several
            runs share can differ.
    """
    runs = [_runs_of(step) for step in (before, after)]
    summary = ""
    if cut_elsewhere:
        was, now = (max(len(side), 1) for side in runs)  # an undivided step has no origins
        summary = f"divided into {counted(now, 'run')}, before: {was:,}"
    elif len(runs[0]) == len(runs[1]):
        # The two steps have the same runs. Look for a graph of one step in whose runs the other
        # step has several graphs, in the old step first.
        for of_runs, others in (runs, runs[::-1]):
            shared = grouped((id(graph), number) for number, (graph, _) in enumerate(of_runs))
            for numbers in shared.values():
                times = len({id(others[number][0]) for number in numbers})
                if times > 1 and not summary:
                    modules = abridged(of_runs[number][1] or MODEL for number in numbers)
                    other_step = "now" if of_runs is runs[0] else "before:"
                    summary = f"compiled once for {modules}, {other_step} {times} times"
    if not summary:
        return []
    place = Place("", after.graphs[0].name, ())
    identity = Identity((f"divided {summary}",))
    return [Finding((place,), summary, identity=identity, of_cut="changed")]


def _runs_of(step: InlinedStep) -> list[tuple[Graph, str]]:
    """Return the compiled graph of each run of a forward, with the module of its ops.

    Empty if nothing divides the step.
    """
    modules = grouped(
        (number, (graph, step.graphs[0].by_name[name].module))
        for (inlined_name, name), (graph, number, _) in step.origins.items()
        if inlined_name == step.graphs[0].name and not graph.eager
    )
    return [(runs[0][0], common_path(module for _, module in runs)) for runs in modules.values()]


def _cuts_of(step: InlinedStep, names: Mapping[str, str]) -> Iterator[_Cut]:
    """Yield the cuts of a step.

    Of many values that cross a cut, its line has the first, and a digest.

    Args:
        step: the step.
        names: new names of values; a value without one keeps its name.
    """
    forward = step.graphs[0]
    positions = [boundary.position for boundary in step.boundaries]
    starts: list[list[str]] = [[] for _ in range(len(positions) + 1)]
    ends: list[list[str]] = [[] for _ in range(len(positions) + 1)]
    for name, first, end in crossed(forward, positions, aliases_of(forward)):
        if first < end:
            starts[first].append(name)
            ends[end].append(name)
    crossing: dict[str, int] = {}
    total = 0
    # The lists have one item more: values that are used after the last cut end there.
    for boundary, begun, ended in zip(step.boundaries, starts, ends, strict=False):
        total -= sum(map(crossing.pop, ended))
        for name in begun:
            crossing[name] = int(digest("value", names.get(name, name)), 16)
            total += crossing[name]
        shown = sorted(islice(crossing, MOST_CROSSING))
        more = len(crossing) - len(shown)
        rest = f" and {more:,} more ({digest('values', total)})" if more else ""
        yield _Cut(boundary, total, f"crossed by {', '.join(f'%{name}' for name in shown)}{rest}")


def _dividing(cuts: Sequence[_Cut]) -> list[_Cut]:
    """Return cuts without those of a break before the first op, which divides nothing."""
    breaks = {_break_key(cut.boundary) for cut in cuts if cut.boundary.position}
    return [cut for cut in cuts if cut.boundary.position or _break_key(cut.boundary) in breaks]


def _break_key(boundary: Boundary) -> tuple[str, str, str, int]:
    """Return the kind, function, file and line of a cut's break; empty values if unknown."""
    cause = boundary.cut.graph_break
    return (*_kind(cause), *(("", 0) if cause is None else (cause.file, cause.line)))


def _ops_around(step: InlinedStep) -> tuple[list[str], list[str]]:
    """Return the names of the ops of a forward before and after each position, "" for none.

    Aliases do not count.

    Returns:
        Two lists, indexed by position: the last op before it, and the first op after it.
    """
    forward = step.graphs[0]
    aliases = aliases_of(forward)
    names = [
        "" if node.name in aliases else node.name
        for node in forward.nodes
        if node.kind != "placeholder"
    ]
    before, after = [""], [""]
    for name in names:
        before.append(name or before[-1])
    for name in reversed(names):
        after.append(name or after[-1])
    return before, after[::-1]


def _is_divided_too(
    cut: Boundary, around: tuple[str, str], other: InlinedStep, partners: Mapping[str, str]
) -> bool:
    """Return True if the other step is divided at a cut as well, for another reason.

    If a break makes Dynamo skip a frame, the breaks of this frame occur no more, and what ran
    eagerly after them still does.

    Args:
        cut: the cut, before eager or before compiled ops.
        around: the ops before and after it, by name; "" for none.
        other: the other step.
        partners: names in the other step.
    """
    (_, first), (graph, second) = (_origin(other, partners.get(name, "")) for name in around)
    if graph is None:
        return False
    # The op after the cut is eager there, too; or the ops around it are in two different runs.
    return graph.eager if cut.eager else first not in (-1, second)


def _origin(step: InlinedStep, name: str) -> tuple[Graph | None, int]:
    """Return the graph of a node of the forward, and the number of its call; -1 if unknown."""
    return step.origins.get((step.graphs[0].name, name), (None, -1))[:2]


def _kind(cause: GraphBreak | None) -> tuple[str, str]:
    """Return the kind of a break, the same for a skipped frame, and the function; "" if unknown."""
    return ("", "") if cause is None else (cause.kind.removeprefix(SKIPPED), cause.function)


def _findings_of(cuts: Sequence[_Cut], kind: ChangeKind) -> Iterator[Finding]:
    """Yield a finding for each break that these cuts have, with a place for each cut at its line.

    A break also divides the callers of its function. These cuts follow from it.

    Args:
        cuts: the cuts.
        kind: "added" or "removed".
    """
    direct = [cut for cut in cuts if cut.boundary.cut.direct]
    # A frame that Dynamo skips has no line at which it is divided. The most frequent break stands
    # for all cuts, at its first cut.
    if not direct:
        known = [cut for cut in cuts if cut.boundary.cut.graph_break]
        causes = Counter(_kind(cut.boundary.cut.graph_break) for cut in known)
        if known:
            direct = [max(known, key=lambda cut: causes[_kind(cut.boundary.cut.graph_break)])]
    for of_break in grouped((_break_key(cut.boundary), cut) for cut in direct).values():
        places = [Place(cut.boundary.module, cut.boundary.graph, ()) for cut in of_break]
        cause = of_break[0].boundary.cut.graph_break
        assert cause is not None  # a direct cut always has a known break
        crossings = [cut.line for cut in of_break]
        # The digest makes the line another one if a cut that is not listed is another.
        if rest := crossings[MOST_CUTS:]:
            crossings[MOST_CUTS:] = [f"and {len(rest):,} more cuts ({digest('cuts', *rest)})"]
        yield break_finding(kind, cause, places, details=crossings)


def break_finding(
    kind: ChangeKind,
    cause: GraphBreak,
    places: Iterable[Place],
    note: str = "",
    details: Iterable[str] = (),
) -> Finding:
    """Return the finding of a graph break that only one side has.

    Args:
        kind: "added" or "removed".
        cause: the graph break.
        places: the places that it divides.
        note: end of the summary.
        details: the values that cross each cut.
    """
    name, function = _kind(cause)
    token = f"graph break {kind} {name} in {function}"
    summary = f"graph break {kind} in {function} ({name})"
    if cause.file:
        summary = f"graph break {kind} at {cause.file}:{cause.line} in {function}"
        summary += f": {cause.code.strip()}" if cause.code.strip() else ""
    return Finding(
        tuple(places),
        summary + note,
        identity=Identity((token,)),
        graph_break=cause,
        of_cut=kind,
        details=tuple(details),
    )


def break_keys(cut: GraphBreak) -> Iterator[Hashable]:
    """Yield values that the same graph break has on two sides, the surest first."""
    kind = cut.kind.removeprefix(SKIPPED)
    yield kind, cut.function, cut.code  # its line may be another one
    yield kind, cut.function, PurePath(cut.file).name  # two checkouts are two directories
    yield kind, cut.code or cut.function  # of a function with a new name


def _is_edit(finding: Finding) -> bool:
    """Return True if a finding changes an op, not only inputs, outputs or saved values."""
    return any(change.node.is_call for place in finding.places for change in place.changes)


def _number_values(step: InlinedStep) -> tuple[dict[str, int], set[str]]:
    """Number the values of a forward, and find the ops that compute one again in another run.

    A compiler computes a value once in each graph, so a division can add such ops.

    Returns:
        The number of each value, by name, equal for equal values; and the names of these ops.
    """
    numbers: dict[Hashable, tuple[int, int]] = {}
    of_node: dict[str, int] = {}
    repeated: set[str] = set()
    for node in step.graphs[0].nodes:
        call = _origin(step, node.name)[1]
        if _is_copy(node):
            of_node[node.name] = of_node[node.refs[0]]
            continue
        # A node with effects may compute another value each time, so its name tells it apart.
        key: Hashable = node.name
        if node.is_call and not node.effects and not node.after:
            operands = tuple(of_node[name] for name in node.refs)
            key = node.op, operands, _constants(node)
        number, first = numbers.setdefault(key, (len(numbers), call))
        of_node[node.name] = number
        if first != call:
            repeated.add(node.name)
    return of_node, repeated


def _is_copy(node: Node) -> bool:
    """Return True for an inactive dropout, or an alias."""
    is_copy = node.op in (INACTIVE_DROPOUT, ALIAS_OP) and not node.kwargs
    return is_copy and len(node.args) == len(node.refs) == 1


def _only_read(step: InlinedStep) -> set[str]:
    """Return the ops whose results only eager code reads, as for the condition of an `if`.

    The eager op that reads such a value is a sync: it copies the value to Python.
    """
    forward = step.graphs[0]
    found: set[str] = set()
    used: set[str] = set()
    for node in reversed(forward.nodes):
        graph, _ = _origin(step, node.name)
        reads = graph is not None and graph.eager and any(e.kind == "syncs" for e in node.effects)
        if node.name not in used and (reads or node.name in found or node.op == ALIAS_OP):
            found |= {node.name, *node.refs}
        else:
            used.update(node.refs)
    return found - used


def _constants(node: Node) -> str:
    """Return the arguments of a node as text, without its references."""
    return format_arg(map_arg((node.args, dict(node.kwargs)), _skeleton))


def _skeleton(value: Arg) -> Arg:
    return None if isinstance(value, Ref) else value


_IN_PLACE = re.compile(r"(?<=[a-z0-9])_(?=\.|$)")
"""The underscore of an op that writes in place."""


def _are_alike(old: Node, new: Node) -> bool:
    """Return True if two nodes differ only in sizes that are symbols in one of them."""
    sides = []
    for node in (old, new):
        value = node.result
        facts = (value.shape, value.dtype) if isinstance(value, TensorMeta) else (value,)
        effects = (effect.kind for effect in node.effects)
        sides.append((node.args, *node.kwargs.items(), *facts, node.options, *effects))
    return _is_like(*sides)


def _is_like(x: object, y: object) -> bool:
    """Return True if two values are equal, or one is a symbol and the other a symbol or an int.

    All references are alike.
    """
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(_is_like, x, y))
    if isinstance(x, Ref) and isinstance(y, Ref):
        return True
    sizes = [value for value in (x, y) if not isinstance(value, Symbol)]
    return x == y or (len(sizes) == 1 and type(sizes[0]) is int)


class _Follows:
    """Recognises what follows from cuts that only one side has.

    Args:
        before, after: the steps.
        unmatched: the cuts of each side that the other side lacks.
        names: the new name of each old node.

    Attributes:
        steps, names: see the arguments.
        backwards: the names of all backward graphs, captured and inlined.
        values: the numbers of the forward's values, by side and name; see `_number_values`.
        derived: for each side, the ops that are there only because of a division: those computed
            again in another run, and those that only eager code reads.
        lines: for each side, the file and line of each of its breaks that the other side lacks.
    """

    def __init__(
        self,
        before: InlinedStep,
        after: InlinedStep,
        unmatched: Sequence[Sequence[_Cut]],
        names: Mapping[str, str],
    ):
        self.steps = before, after
        self.names = names
        graphs = [
            graph
            for step in self.steps
            for graph in (*step.graphs, *(origin.graph for origin in step.origins.values()))
        ]
        self.backwards = {graph.name for graph in graphs if graph.kind == "backward"}
        numbered = [_number_values(step) for step in self.steps]
        self.values = [values for values, _ in numbered]
        self.derived = [
            repeated | _only_read(step)
            for step, (_, repeated) in zip(self.steps, numbered, strict=True)
        ]
        self.lines = [
            {(cause.file, cause.line) for cut in side if (cause := cut.boundary.cut.graph_break)}
            - {("", 0)}
            for side in unmatched
        ]

    def belongs(self, finding: Finding) -> bool:
        """Return True if all of a finding follows from the cuts."""
        changes = [change for place in finding.places for change in place.changes]
        ops = ops_of(changes)
        if not ops:  # only inputs, outputs or saved values, which a division changes
            return not self._is_return(finding)
        # What used a derived op takes another operand of the same value now.
        rest = [
            change for change in ops if change.kind != "rewired" or not self._reads_same(change)
        ]
        if not {step.graphs[0].level for step in self.steps} <= {*COMPARABLE}:
            # An op of the undivided step and the eager ops that replace it have nothing in common.
            rest = [change for change in rest if self._is_of_divided(change)] or rest
        return all(map(self._follows, rest))

    def _reads_same(self, change: Change) -> bool:
        """Return True if an op of the forward reads the same values as before.

        Also True for an added or removed op, and for any op of a backward.
        """
        before, after = change.before, change.after
        old, new = self.values
        if before is None or after is None or change.graph in self.backwards:
            return True
        return len(before.refs) == len(after.refs) and all(
            new.get(self.names.get(p, "")) == new.get(q)
            for p, q in zip(before.refs, after.refs, strict=True)
            if p in old and q in new
        )

    def _is_of_divided(self, change: Change) -> bool:
        """Return True if a node of the change is in a step that something divides."""
        return any(self._origin(side, node) is not None for side, node in sides_of(change))

    def _is_return(self, finding: Finding) -> bool:
        """Return True if the target returns other values: not a break's doing."""
        for place in finding.places:
            for change in place.changes:
                if change.node.kind != "output" or change.graph in self.backwards:
                    continue
                old, new = (node.refs if node else () for node in (change.before, change.after))
                if tuple(self.names.get(name, name) for name in old) != new:
                    return True
        # Named outputs are described; see `compare`.
        return ": output " in finding.summary

    def _follows(self, change: Change) -> bool:
        """Return True if a change of an op follows from the cuts."""
        if change.graph in self.backwards:
            return True
        one_sided = change.kind in SIDES
        origins = [self._origin(side, node) for side, node in sides_of(change)]
        if change.kind == "changed" and all(graph and graph.eager for graph in origins):
            return False  # the break did not make it eager
        if change.before is not None and change.after is not None:
            old, new = change.before, change.after
            reads_same = change.kind == "changed" and self._reads_same(change)
            if reads_same and old.op == new.op and _are_alike(old, new):
                return True  # a graph that is compiled for several sizes is dynamic
            if old.op == new.op and _constants(old) != _constants(new):
                return False  # eager code has other ops, and not other constants
            same_op = _IN_PLACE.sub("", old.op) == _IN_PLACE.sub("", new.op)
            if reads_same and same_op and _constants(old) == _constants(new):
                return True  # compiled graphs have no writes in place
        for side, node in sides_of(change):
            source = node.source
            if one_sided and (
                (node.op == INACTIVE_DROPOUT and _is_copy(node))
                or node.name in self.derived[side]
                or (source is not None and (source.file, source.line) in self.lines[side])
            ):
                return True
            # At other levels, eager ops are recorded otherwise than compiled ones, so any
            # difference follows.
            graph = self._origin(side, node)
            if graph is not None and graph.eager:
                return self.steps[side].graphs[0].level not in COMPARABLE
        return False

    def _origin(self, side: int, node: Node) -> Graph | None:
        """Return the captured graph of a node of a forward; `None` in an undivided step."""
        return _origin(self.steps[side], node.name)[0]


def _attach(cuts: Sequence[Finding], derived: Sequence[Finding], origins: Origins) -> list[Finding]:
    """Return the findings of cuts, each with the consequences in the modules nearest to it.

    Args:
        cuts: the findings of the breaks, at least one.
        derived: the findings that follow from them. All their changes become consequences.
        origins: receives the reasons.
    """
    follows: list[list[Finding]] = [[] for _ in cuts]
    for finding in derived:
        best = max(range(len(cuts)), key=lambda k: _nearness(cuts[k], finding))
        follows[best].append(finding)
    attached = []
    for cut, findings in zip(cuts, follows, strict=True):
        changes = tuple(
            change
            for finding in findings
            for place in finding.places
            for change in (*place.changes, *place.consequences)
        )
        origins.because(CUT, changes, None)
        first = replace(cut.places[0], consequences=changes)
        costs = partial(_sum, findings)
        attached.append(replace(cut, places=(first, *cut.places[1:]), costs=costs))
    return attached


def _nearness(cut: Finding, finding: Finding) -> tuple[bool, int]:
    """Return how near a finding is to a cut: on the same line, then in a common module."""
    lines = [(s.file, s.line) for s in (cut.source, finding.source) if s is not None]
    shared = (
        len(common_prefix((own.module.split("."), other.module.split("."))))
        for own in cut.places
        for other in finding.places
    )
    return len(lines) == 2 and lines[0] == lines[1], max(shared)


def _sum(findings: Sequence[Finding]) -> Cost:
    return sum_of(finding.cost for finding in findings)


BREAK = "graph break"
"""Op of the node that stands for a graph break in `pairs_with_breaks`."""


def pairs_with_breaks(diff: GraphDiff) -> list[GraphPair]:
    """Return the raw lists of a difference, with a node in the forward for each graph break."""
    cuts = [finding for finding in diff.findings if finding.of_cut is not None]
    origins = diff.origins
    if not cuts or origins is None or origins.steps is None:
        return [*diff.graphs]
    forwards = origins.pairs[0]  # of an inlined step
    graphs: list[Graph] = []
    for step, plain, kind in zip(origins.steps, forwards, SIDES, strict=True):
        assert plain is not None
        nodes: list[tuple[Boundary, Node]] = []
        for boundary in step.boundaries:
            own = [f for f in cuts if f.kind == kind and _has_place(f, boundary)]
            if own and own[0].graph_break is not None:
                number = len(nodes)
                name = f"{BREAK} {number}" if number else BREAK
                node = Node(
                    name, "call_function", BREAK, module=boundary.module, source=own[0].source
                )
                nodes.append((boundary, node))
        graphs.append(insert_cuts(step.graphs[0], plain, nodes))
    removed, added = (tuple(n for n in graph.nodes if n.op == BREAK) for graph in graphs)
    pairs = [pair for pair in diff.graphs if pair.before is forwards[0]]
    pair = pairs[0] if pairs else GraphPair(*forwards)
    broken = replace(
        pair,
        before=graphs[0],
        after=graphs[1],
        added=(*added, *pair.added),
        removed=(*removed, *pair.removed),
    )
    return [broken, *(other for other in diff.graphs if other is not pair)]


def _has_place(finding: Finding, boundary: Boundary) -> bool:
    """Return True if a cut is one of the places of a break."""
    return boundary.cut.direct and any(
        (place.module, place.graph) == (boundary.module, boundary.graph) for place in finding.places
    )
