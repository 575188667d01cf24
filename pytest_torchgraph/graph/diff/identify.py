"""Compute the identities of findings: the tokens of `Finding.identity`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..census import calls
from ..model import Graph, Node
from ..module_paths import OwnModule, common_path
from ..text import format_node
from .findings import Change, Finding, Identity, Place, ops_of
from .keys import METHODS, EditKeys, without_derived
from .moves import fixed_constants
from .origins import Origins
from .paths import holds, is_index, path_of

ATEN = "aten."
COPIES = ("_to_copy", "index_copy", "_foreach_copy")
"""Ops whose `_copy` is part of the name. On other ops, `_copy` marks the form without an alias."""

MAX_EDITS = 32
"""Maximum number of `edits` tokens of a finding."""


def identified(
    findings: Iterable[Finding], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """Return the findings, each with its identity.

    Args:
        findings: the findings of one comparison.
        before, after: all graphs of the two captures.
        origins: the origins of the changes.
    """
    identities = _Identities(before, after, origins)
    return [replace(finding, identity=identities.of(finding)) for finding in findings]


class _Identities:
    """The identities of the findings of one comparison."""

    def __init__(self, before: Sequence[Graph], after: Sequence[Graph], origins: Origins):
        self.after = after
        self.origins = origins
        self.kinds = {graph.name: graph.kind for graph in (*before, *after)}
        self.keys = EditKeys(origins)
        self._left: dict[str, frozenset[str]] = {}

    def of(self, finding: Finding) -> Identity:
        edits = self._edits(finding)[:MAX_EDITS]
        if finding.summary or finding.of_graph:
            return Identity(edits)
        gone, came = ops_of_edit(finding)
        lines = self._lines(finding)
        expression = self._expression(finding, lines) if lines else ()
        plain = [tuple(sorted({*map(_plain, ops)})) for ops in (gone, came)]
        everywhere = gone and came and self._ops_left(finding).isdisjoint(gone)
        return Identity(
            edits,
            line=digest("line", lines, expression, gone, came) if lines else "",
            rewrite=digest("rewrite", gone, came) if everywhere else "",
            release=digest("release", *plain) if gone or came else "",
            where=where(finding.places, (gone, came)),
        )

    def _ops_left(self, finding: Finding) -> frozenset[str]:
        """Return the ops in the new graphs of the finding's kind of graph."""
        kind = self.kinds.get(finding.graph.rpartition(" -> ")[2], "forward")
        if kind not in self._left:
            graphs = (graph for graph in self.after if graph.kind == kind)
            self._left[kind] = frozenset(call.op for call in calls(graphs))
        return self._left[kind]

    def _edits(self, finding: Finding) -> tuple[str, ...]:
        if finding.modules:
            return (digest("modules", finding.kind, finding.modules, finding.like),)
        if finding.summary or finding.of_graph:
            return (digest("summary", finding.summary),)
        if not all(map(self.origins.knows, finding.changes)):
            nodes = [(change.kind, *_texts(change)) for change in finding.changes]
            return (digest("nodes", finding.graph, *nodes),)
        key = self.keys.key(finding)
        inner = dict.fromkeys(_inner_numbers(path_of(p.changes[0].node)) for p in finding.places)
        return tuple(digest("edit", key, numbers) for numbers in inner)

    def _lines(self, finding: Finding) -> Sequence[Hashable]:
        """Return the lines of code of an edit; empty if one of them is unknown.

        Removed nodes are used only if nothing was added: stored graphs have no source lines.
        """
        lines: list[Hashable] = []
        for change in ops_of(without_derived(finding.changes)):
            node = change.after
            if node is None:
                continue
            if node.source is None:
                return ()
            line = node.source.file, node.source.line, node.source.code.strip()
            is_method = node.source.function.rpartition(".")[2] in METHODS
            if not is_method or (node.source.direct and not self._calls_modules(line[:2], node)):
                lines.append((*line, ""))
            elif (own := self._own_module(node.module)) is None:
                module = self._modules_of_lines.get(line[:2], "")
                lines.append((*line, _starred(node.module)[len(module) :].removeprefix(".")))
            elif self._own[own].has_forward:
                # A line of a method may call several torch modules. Their paths relative to the
                # module of the method distinguish them.
                lines.append((*line, _below(_starred(node.module), own)))
            else:  # a class without such a method, as a `Sequential`, is identified by its name
                lines.append(("class", self._own[own].name, 0, _below(node.module, own)))
        return tuple(dict.fromkeys(lines)) or self._what_is_gone(finding)

    def _expression(self, finding: Finding, lines: Sequence[Hashable]) -> Hashable:
        """Return the columns and the constants of the edit's primary op.

        One line may call an op several times. Only the primary op counts: the number of further
        nodes of an edit depends on what surrounds the line. The line of an op in a class that is
        identified by its name is the line that called the module, so it does not count.

        Args:
            finding: the edit.
            lines: see `_lines`.
        """
        for change in ops_of(without_derived(finding.changes)):
            old, new = self.origins.of(change)
            if change.after is None or change.after.source is None or new is None:
                continue
            constants = [fixed_constants(new.flat, new.number)]
            if old is not None and old.flat.nodes[old.number].op == change.after.op:
                constants.append(fixed_constants(old.flat, old.number))
            is_line = not (isinstance(lines[0], tuple) and lines[0][0] == "class")
            return change.after.source.columns if is_line else (), tuple(constants)
        return ()

    def _calls_modules(self, line: tuple[str, int], node: Node) -> bool:
        """Return True if a line also runs ops in a module around the node's module.

        The line then belongs to a method of that outer module.
        """
        return any(
            path != node.module and (not path or holds(path, node.module))
            for path in self._paths_of_lines.get(line, ())
        )

    def _what_is_gone(self, finding: Finding) -> Sequence[Hashable]:
        """Return the removed nodes of an edit by class and name, in place of unknown lines."""
        gone = []
        for change in ops_of(without_derived(finding.changes)):
            node = change.before
            own = None if node is None else self._own_module(node.module)
            if node is None or own is None:
                return ()
            gone.append(("gone", self._own[own].name, node.name.removeprefix(own).lstrip("./")))
        return tuple(sorted(gone))

    def _own_module(self, path: str) -> str | None:
        """Return the innermost module around a path with a class outside torch, or `None`.

        The line of a method belongs to this module.
        """
        while path not in self._own:
            if not path:
                return None
            path = path.rpartition(".")[0]
        return path

    @cached_property
    def _own(self) -> Mapping[str, OwnModule]:
        return {path: each for graph in self.after for path, each in graph.own_modules.items()}

    @cached_property
    def _modules_of_lines(self) -> Mapping[tuple[str, int], str]:
        """Maps each line of code to the common module of all its ops, `_starred`."""
        known = self._paths_of_lines.items()
        return {line: common_path(map(_starred, paths)) for line, paths in known}

    @cached_property
    def _paths_of_lines(self) -> Mapping[tuple[str, int], set[str]]:
        """Maps each line of code to the modules of its ops."""
        modules: dict[tuple[str, int], set[str]] = {}
        for call in calls(self.after):
            node = call.node
            if node.source is not None:
                line = node.source.file, node.source.line
                modules.setdefault(line, set()).add(node.module)
        return modules


def _starred(path: str) -> str:
    """Return a path with `*` in place of its first number, the number of a layer."""
    parts = path.split(".")
    first = next((k for k, part in enumerate(parts) if is_index(part)), len(parts))
    return ".".join([*parts[:first], *["*"][: len(parts) - first], *parts[first + 1 :]])


def _below(path: str, own: str) -> str:
    """Return the path of a module relative to its outer module `own`."""
    return ".".join(path.split(".")[len(own.split(".")) if own else 0 :])


def where(places: Iterable[Place], ops: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    """Return a token for an edit from its old nodes, or "" if a place has no old node.

    The names of added nodes are not used: they say too little.
    """
    nodes = [place.changes[0].before for place in places]
    if not any(ops) or None in nodes:
        return ""
    return digest("where", tuple(sorted({node.name for node in nodes if node})), *ops)


def _inner_numbers(path: str) -> tuple[str, ...]:
    """Return the numbers in a path after the first, which is the number of a layer."""
    return tuple(part for part in path.split(".") if is_index(part))[1:]


def _texts(change: Change) -> tuple[str, ...]:
    return tuple("" if n is None else format_node(n) for n in (change.before, change.after))


def ops_of_edit(finding: Finding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the removed and the added ops, each once, since their number depends on sizes."""
    gone: Counter[str] = Counter()
    came: Counter[str] = Counter()
    for change in ops_of(without_derived(finding.changes)):
        before, after = change.before, change.after
        if before is not None and after is not None and before.op == after.op:
            continue
        if before is not None:
            gone[before.op] += 1
        if after is not None:
            came[after.op] += 1
    both = gone.keys() & came.keys()
    if gone.keys() != came.keys():
        for op in both:  # moved to a different place within the same edit
            del gone[op], came[op]
    return tuple(sorted(gone)), tuple(sorted(came))


def _plain(op: str) -> str:
    """Return an op name without the suffixes of functionalization.

    `fill_` becomes `fill`, and `lift_fresh_copy` becomes `lift_fresh`, so that the graphs of all
    capture mechanisms agree.
    """
    packet, dot, overload = op.removeprefix(ATEN).partition(".")
    if not op.startswith(ATEN):
        return op
    packet = packet.removesuffix("_")
    if packet not in COPIES:
        packet = packet.removesuffix("_copy")
    return f"{ATEN}{packet}{dot}{overload}"


def digest(*parts: Hashable) -> str:
    """Return a token for these values that is equal in every process."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()
