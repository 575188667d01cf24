"""Syncs and transfers in what a capture saw: recorded calls, graphs, graph breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..graph.model import Graph, Node, Ref, Source
from ..watching.breaks import SKIPPED, GraphBreak
from .calls import Call, copied_by, symbols_in, wait_of
from .methods import METHODS
from .model import BREAKS, COPIES, READS, SIZES, STARTS, THREADS, Sync, Transfer

if TYPE_CHECKING:
    from ..watching.graphs import Graphs

BREAK = "graph break"
CALL = "call"
_OPERATOR = re.compile(r"Operator `([^`]+)`")
_KNOWN = (
    ("Unsupported Tensor.item() call", READS, "Tensor.item"),
    ("Tensor.tolist()", READS, "Tensor.tolist"),
    ("Data dependent operator", READS, ""),
    ("Dynamic shape operator", SIZES, ""),
    ("Data-dependent branching", READS, "Tensor.__bool__"),
    ("Data-dependent assertion failed", READS, "Tensor.__bool__"),
    ("Attempted to use `torch.nn.functional.one_hot`", SIZES, "torch.nn.functional.one_hot"),
)
"""What the kinds of breaks begin with of which it is known what ran there, why that waits, and its
op, "" for the one that the reason names."""
_NOTHING = ("Call to `torch._dynamo.graph_break()`",)
"""The kinds of breaks at which nothing runs."""


@dataclass
class RecordedCalls:
    """Calls as they ran, in order.

    Attributes:
        calls: each with the graph that it belongs to, its module and its source.
        methods: calls of `METHODS`, and `STARTS` for threads, with module and source.
    """

    calls: list[tuple[Call, str, str, Source | None]] = field(default_factory=list)
    methods: list[tuple[str, str, Source | None]] = field(default_factory=list)


_Place = dict[str, Any]
_Found = TypeVar("_Found", Sync, Transfer)


def recorded_syncs(seen: RecordedCalls) -> tuple[Sync, ...]:
    """The syncs among calls that ran."""
    found = [
        Sync(kind, call.op, graph, **_place(source, module))
        for call, graph, module, source in seen.calls
        for kind in [wait_of(call)]
        if kind
    ]
    methods = [
        Sync(METHODS[name], f"Tensor.{name}", CALL, **_place(source, module))
        for name, module, source in seen.methods
        if name != STARTS
    ]
    threads = [
        Sync(THREADS, STARTS, CALL, **_place(source, module), certain=False)
        for name, module, source in seen.methods
        if name == STARTS
    ]
    return _merged([*found, *_others(methods, found), *threads])


def recorded_transfers(seen: RecordedCalls) -> tuple[Transfer, ...]:
    """The transfers among calls that ran."""
    found = [
        Transfer(*copied[:2], call.op, copied[2], graph, **_place(source, module))
        for call, graph, module, source in seen.calls
        for copied in [copied_by(call)]
        if copied is not None
    ]
    threads = [
        Transfer("", "", STARTS, False, CALL, **_place(source, module), certain=False)
        for name, module, source in seen.methods
        if name == STARTS
    ]
    return _merged([*found, *threads])


def compiled_syncs(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    read: Graphs | None,
    hooks: Graphs | None = None,
) -> tuple[Sync, ...]:
    """The syncs of compiled code: those in its graphs, and what ran where they break.

    Args:
        graphs: at the level that is asked about.
        breaks: the graph breaks.
        read: all graphs of the capture, None where there are no others.
        hooks: where a captured backward was only traced, as far as its first break, what Dynamo
            made of it: its graph calls hooks, and these are seen inside of them.
    """
    found = list(_graph_syncs(graphs))
    if hooks is not None:
        known = {(each.file, each.line, each.kind) for each in found}
        inside = _graph_syncs(hooks.at("dynamo"))
        found += [each for each in inside if (each.file, each.line, each.kind) not in known]
    if read is not None and any(".cpu()" in text for text in _dynamo_texts(read)):
        calls = [each for each in _graph_syncs(read.at("dynamo")) if each.op == "Tensor.cpu"]
        found += _others((replace(each, seen=CALL) for each in calls), found)
    only_traced = hooks is not None
    return _merged([*found, *(each for one in breaks for each in _break_syncs(one, only_traced))])


def compiled_transfers(
    graphs: Sequence[Graph], breaks: Sequence[GraphBreak], hooks: Graphs | None = None
) -> tuple[Transfer, ...]:
    """The transfers of compiled code; see `compiled_syncs`."""
    found = list(_graph_transfers(graphs))
    if hooks is not None:
        known = {(each.file, each.line, each.source) for each in found}
        inside = _graph_transfers(hooks.at("dynamo"))
        found += [each for each in inside if (each.file, each.line, each.source) not in known]
    unknown = [
        Transfer("", "", each.op, False, BREAK, **_place(one, one.module), certain=False)
        for one in breaks
        for each in _break_syncs(one, hooks is not None)
        if not each.certain
    ]
    return _merged([*found, *unknown])


def _graph_transfers(graphs: Sequence[Graph]) -> Iterator[Transfer]:
    for name, node, call in _calls(graphs):
        copied = copied_by(call)
        if copied is not None:
            place = _place(node.source, node.module)
            yield Transfer(*copied[:2], call.op, copied[2], name, **place)


def _graph_syncs(graphs: Sequence[Graph]) -> Iterator[Sync]:
    inputs = tuple(node.result for top in graphs for graph in top.walk() for node in graph.inputs)
    known = symbols_in(inputs)
    for name, node, call in _calls(graphs):
        kind = wait_of(call, known)
        known |= symbols_in(call.result)
        if kind:
            yield Sync(kind, call.op, name, **_place(node.source, node.module))


def _calls(graphs: Iterable[Graph]) -> Iterator[tuple[str, Node, Call]]:
    """The nodes of graphs and of those inside them, with the name of the outermost graph."""
    for top in graphs:
        for graph in reversed(list(top.walk())):  # symbols are known where a body made them
            results = {node.name: node.result for node in graph.nodes}
            for node in graph.nodes:
                if node.is_call:
                    args, kwargs = _with(node.args, results), _with(dict(node.kwargs), results)
                    yield top.name, node, Call(node.op, args, kwargs, node.result).unwrapped()


def _with(value: Any, results: dict[str, Any]) -> Any:
    """An argument with the results of nodes in the place of references."""
    if isinstance(value, Ref):
        return results.get(value.name)
    if isinstance(value, tuple):
        return tuple([_with(item, results) for item in value])
    if isinstance(value, dict):
        return {key: _with(item, results) for key, item in value.items()}
    return value


def _break_syncs(each: GraphBreak, only_traced: bool) -> Iterator[Sync]:
    """What ran at a graph break: an op that waits, nothing, or nobody knows what.

    Args:
        only_traced: whether a captured backward was traced as far as its first break, and no more.
    """
    kind = each.kind.removeprefix(SKIPPED)
    behind = kind != each.kind or (only_traced and each.compile_id.startswith("!"))
    for begin, why, op in _KNOWN:
        if kind.startswith(begin):
            named = _OPERATOR.search(each.reason)
            op = op or (named[1] if named else kind)
            yield Sync(why, op, BREAK, **_place(each, each.module), occurrences=each.occurrences)
            break
    else:
        if not behind and not kind.startswith(_NOTHING):
            yield Sync(BREAKS, kind, BREAK, **_place(each, each.module), certain=False)
    if behind:
        yield Sync(BREAKS, f"{SKIPPED}{kind}", BREAK, **_place(each, each.module), certain=False)


def _place(of: Source | GraphBreak | None, module: str) -> _Place:
    if of is None:
        return {"file": "", "line": 0, "code": "", "function": "", "module": module}
    return {
        "file": of.file,
        "line": of.line,
        "code": of.code,
        "function": of.function,
        "module": module,
    }


def _dynamo_texts(read: Graphs) -> Iterator[str]:
    for each in read.record.compiled:
        yield from each.texts("dynamo")


def _others(more: Iterable[Sync], found: Iterable[Sync]) -> list[Sync]:
    """Those at places at which none was found: a call is an op as well, except on the CPU."""
    known = {(each.file, each.line) for each in found if each.kind in (READS, COPIES)}
    return [each for each in more if (each.file, each.line) not in known]


def _merged(found: Iterable[_Found]) -> tuple[_Found, ...]:
    """Each once, with the number of times that it was found."""
    merged: dict[Any, _Found] = {}
    for each in found:
        key = replace(each, occurrences=1, seen="", code="")
        known = merged.get(key)
        count = each.occurrences + (0 if known is None else known.occurrences)
        merged[key] = replace(each if known is None else known, occurrences=count)
    return tuple(merged.values())
