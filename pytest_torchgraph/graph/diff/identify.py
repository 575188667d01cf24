"""The identities of findings: what makes the tokens of `identity`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from ..model import Graph
from ..ops import calls
from ..text.format import format_node
from .calls import METHODS
from .findings import Change, Finding, ops_of
from .identity import Identity
from .keys import EditKeys, without_derived
from .origins import Origins
from .paths import is_index, path_of

ATEN = "aten."
COPIES = ("_to_copy", "index_copy", "_foreach_copy")
"""Ops that copy by themselves: of other ones `_copy` is the form without an alias."""

MAX_EDITS = 32
"""How many tokens of its places a finding has at most."""


def identified(
    findings: Iterable[Finding], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """The findings, each with its identity.

    Args:
        findings: of one comparison.
        before, after: all graphs of the two captures.
        origins: where the changes come from.
    """
    keys = EditKeys(origins)
    left: dict[str, frozenset[str]] = {}

    def ops_left(kind: str) -> frozenset[str]:
        if kind not in left:
            left[kind] = frozenset(
                node.op for node in calls(graph for graph in after if graph.kind == kind)
            )
        return left[kind]

    kinds = {graph.name: graph.kind for graph in (*before, *after)}
    found = []
    for finding in findings:
        line, rewrite, release = "", "", ""
        if not (finding.summary or finding.of_graph):
            gone, came = _ops(finding)
            kind = kinds.get(finding.graph.rpartition(" -> ")[2], "forward")
            if (lines := _lines(finding)) is not None:
                line = _digest("line", lines, gone, came)
            if gone or came:
                plain = [tuple(sorted({*map(_plain, ops)})) for ops in (gone, came)]
                release = _digest("release", *plain)
            if gone and came and ops_left(kind).isdisjoint(gone):
                rewrite = _digest("rewrite", gone, came)
        found.append(
            replace(
                finding, identity=Identity(_edits(finding, keys, origins), line, rewrite, release)
            )
        )
    return found


def _edits(finding: Finding, keys: EditKeys, origins: Origins) -> tuple[str, ...]:
    if finding.modules:
        return (_digest("modules", finding.kind, finding.modules, finding.like),)
    if finding.summary or finding.of_graph:
        return (_digest("summary", finding.summary),)
    if not all(map(origins.knows, finding.changes)):
        nodes = [(c.kind, *_texts(c)) for c in finding.changes]
        return (_digest("nodes", finding.graph, *nodes),)
    key = keys.key(finding)
    inner = dict.fromkeys(_inner_numbers(path_of(p.changes[0].node)) for p in finding.places)
    return tuple(_digest("edit", key, numbers) for numbers in inner)[:MAX_EDITS]


def _inner_numbers(path: str) -> tuple[str, ...]:
    """The numbers in a path behind the first one, which is that of a layer."""
    return tuple(part for part in path.split(".") if is_index(part))[1:]


def _texts(change: Change) -> tuple[str, ...]:
    return tuple("" if n is None else format_node(n) for n in (change.before, change.after))


def _ops(finding: Finding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ops that went and those that came, each once: how many there are depends on sizes."""
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
        for op in both:  # taken to another place of the same edit
            del gone[op], came[op]
    return tuple(sorted(gone)), tuple(sorted(came))


def _plain(op: str) -> str:
    """An op without what functionalization does to it: `fill_` is `fill`, `lift_fresh_copy` is
    `lift_fresh`, so that the graphs of all mechanisms agree.
    """
    packet, dot, overload = op.removeprefix(ATEN).partition(".")
    if not op.startswith(ATEN):
        return op
    packet = packet.removesuffix("_")
    if packet not in COPIES:
        packet = packet.removesuffix("_copy")
    return f"{ATEN}{packet}{dot}{overload}"


def _lines(finding: Finding) -> Hashable | None:
    """The lines of code that an edit is on; None where these are not all known.

    On the line of a method stand all the modules that it calls: their own names tell these apart.
    """
    lines = []
    for change in ops_of(without_derived(finding.changes)):
        source = change.node.source
        if source is None:
            return None
        method = source.function.rpartition(".")[2] in METHODS
        name = change.node.module.rpartition(".")[2] if method else ""
        lines.append((source.file, source.line, name))
    return tuple(dict.fromkeys(lines)) or None


def _digest(*parts: Hashable) -> str:
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()
