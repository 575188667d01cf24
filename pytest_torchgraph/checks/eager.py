"""The assertion that nothing ran eagerly beside compiled graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.eager_op import EagerOp
from ..graph.failures import UnexpectedOps, failed
from ..graph.graph_break import GraphBreak
from ..graph.model import Graph, Node
from ..ops import registry
from ..ops.names import is_glob, matches
from ..ops.patterns import pattern_name, refuse_impossible
from ..words import counted, listed

if TYPE_CHECKING:
    from .subject import Subject

_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<line>\d+))?\Z")


def assert_no_eager_ops(capture: Subject, allow: Any) -> None:
    """See `Capture.assert_no_eager_ops`."""
    __tracebackhide__ = True
    if isinstance(allow, str) or callable(allow):
        allow = (allow,)
    patterns = [_pattern(each) for each in allow]
    _refuse_everything(allow)
    ops = capture.eager_ops

    def allowed(op: EagerOp) -> bool:
        if op.by_engine or any(pattern(op) for pattern in patterns):
            return True
        return op.follows is not None and allowed(op.follows)

    found = [op for op in ops if not allowed(op)]
    if not found:
        return
    title = f"{counted(len(found), 'op')} ran eagerly, in no compiled graph"
    lines = [f"{title}:", *_lines(found, capture.eager)]
    if any(op.source is not None for op in found):
        lines.append("What may stay eager can be allowed, as in allow=['model.py:31']")
    nodes = _nodes(found, capture.eager)
    raise failed("\n".join(lines), UnexpectedOps(capture.eager, nodes, title))


def _pattern(allowed: Any) -> Callable[[EagerOp], bool]:
    """The test for one entry of `allow`.

    Raises:
        ValueError: for an op pattern that can match no eager op.
    """
    place = _FILE.match(allowed) if isinstance(allowed, str) else None
    if place is not None:
        file, line = place["file"], place["line"]

        def is_there(op: EagerOp) -> bool:
            source = op.source
            return (
                source is not None
                and (source.file == file or source.file.endswith(f"/{file}"))
                and (line is None or source.line == int(line))
            )

        return is_there
    name = pattern_name(allowed)
    refuse_impossible(allowed, ("dispatch",))
    return lambda op: matches(op.op, name)


def _refuse_everything(allow: Sequence[Any]) -> None:
    """Refuse op patterns that together match most ops of torch, as `"aten.*"` does.

    Raises:
        ValueError: if more than half of the ops that an eager run can dispatch are allowed.
    """
    globs = [name for name in allow if isinstance(name, str) and is_glob(name)]
    allowed = {op for name in globs for op in registry.matching(name)}
    ops = [op for op in registry.registered() if op.startswith("aten.") if not op.endswith("out")]
    if 2 * len(allowed.intersection(ops)) > len(ops):
        shown = globs[0] if len(globs) == 1 else globs
        raise ValueError(f"allow={shown!r} matches everything, so nothing would be checked")


def _lines(found: Sequence[EagerOp], graphs: Sequence[Graph]) -> list[str]:
    """The ops by graph and line, with the causes."""
    by_name = {graph.name: graph for graph in graphs}
    places: dict[tuple[str, GraphBreak | None, str, str], list[str]] = {}
    for op in found:
        source = op.source
        place = "no line of yours is known"
        if source is not None:
            place = f"{source} in {source.function}: {source.code}"
        places.setdefault((op.graph, op.cause, place, op.module), []).append(op.op)
    lines: list[str] = []
    last: tuple[str, GraphBreak | None] | None = None
    for (name, cause, place, module), ops in places.items():
        graph = by_name[name]
        if last is None or name != last[0]:
            runs = f", ran {graph.runs} times" if graph.runs > 1 else ""
            lines.append(f"  {name} ({graph.kind}{runs})")
        if (name, cause) != last:
            lines += [f"    {line}" for line in _cause(cause)]
        last = name, cause
        where = f" [{module}]" if module else ""
        lines += [f"    {place}{where}", f"      {listed(dict.fromkeys(ops), 6)}"]
    return lines


def _cause(cause: GraphBreak | None) -> list[str]:
    if cause is None:
        return []
    lines = [f"because of: {cause.kind}: {cause.reason}"]
    if cause.hint:
        lines += [f"  {line}" for line in cause.hint.splitlines()]
    return lines


def _nodes(found: Sequence[EagerOp], graphs: Sequence[Graph]) -> list[Node]:
    """The nodes that stand for ops."""
    wanted = {(op.graph, op.op) for op in found}
    return [node for graph in graphs for node in graph.nodes if (graph.name, node.op) in wanted]
