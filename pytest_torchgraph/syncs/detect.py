"""Find host syncs and transfers in recorded calls, in graphs, and at graph breaks."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .. import torch_private
from ..graph.census import calls
from ..graph.events import SKIPPED, EagerOp, GraphBreak
from ..graph.model import Graph, Node, Ref, Source, map_arg
from .model import BREAKS, CALL, COPIES, MASKS, READS, SIZES, STARTS, THREADS, Sync, Transfer
from .op_calls import SyncCall, device_copy_of, may_sync_or_copy, symbols_in, sync_kind

if TYPE_CHECKING:
    from ..watching.graphs import PrintedGraphs


METHODS = {
    "tolist": READS,
    "numpy": READS,
    "__array__": READS,
    "__dlpack__": "",
    "__repr__": READS,
    "cpu": COPIES,
}
"""Sync kind of each method if the tensor is on another device; "" if the method does not sync."""
_REPLACED: list[tuple[type, str, str]] = [
    *((torch.Tensor, name, name) for name in METHODS),
    (threading.Thread, "start", STARTS),
]
"""Owner and name of each replaced method, with the name that `on_method_call` reports."""


@contextlib.contextmanager
def on_method_call(report: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `report(name, tensor)` for each outermost call of a method in `METHODS`, in any thread.

    The start of a thread is reported as `report(STARTS, thread)`, because a dispatch mode does not
    see the ops of the thread.

    The methods are replaced in `torch.Tensor`. A TorchFunctionMode would change what runs, because
    torch takes different paths while a mode is active. On exit, a method that other code has
    replaced again stays as it is.
    """
    thread_state = threading.local()
    if "torch._dynamo" in sys.modules:  # otherwise Dynamo would trace the wrappers
        _skip_in_dynamo()
    replaced: list[tuple[type, str, Any, Any]] = []

    def observed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of a method that reports its outermost calls."""

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            # Other code may have kept this wrapper. After the context, `replaced` is empty.
            if not replaced or getattr(thread_state, "is_inside", False):
                return original(*args, **kwargs)
            report(name, args[0] if args else None)
            thread_state.is_inside = True
            try:
                return original(*args, **kwargs)
            finally:
                thread_state.is_inside = False

        return called

    try:
        for owner, name, reported in _REPLACED:
            new = observed(reported, getattr(owner, name))
            replaced.append((owner, name, vars(owner).get(name), new))
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, own_method, new in replaced:
            if vars(owner).get(name) is not new:  # other code has replaced it again
                continue
            if own_method is not None:
                setattr(owner, name, own_method)
            else:
                delattr(owner, name)
        replaced.clear()


@functools.cache
def _skip_in_dynamo() -> None:
    """Make Dynamo skip the wrappers of the methods. The search through modules takes 1 ms."""
    torch_private.leave_alone(__name__)
    # torch keeps these lists of its methods, and would keep the wrappers in them.
    torch.overrides.get_testing_overrides()
    torch.overrides.get_overridable_functions()


BREAK = "graph break"
"""Value of `seen` for a sync at a graph break."""
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
"""Graph breaks with a known sync: prefix of the break's kind, kind of the sync, and its op.

The op is "" if the reason of the break names it.
"""
_BREAKING_AS = {READS: (READS, SIZES), SIZES: (SIZES,), MASKS: (SIZES,)}
"""Kinds of graph-break syncs that can be the same op as a recorded sync, by the recorded kind.

Indexing by a mask breaks a graph because of the size of the result. `one_hot` reads the size of its
result back.
"""
_WITHOUT_OP = ("Call to `torch._dynamo.graph_break()`",)
"""Prefixes of the kinds of graph breaks at which no code runs."""


@dataclass
class RecordedCalls:
    """Recorded calls of one step, in order.

    Attributes:
        calls: calls of ops, each with the name of its graph, its module and its source.
        methods: names of called `METHODS`, and `STARTS` for each started thread, with module and
            source, and the phase of the step, "forward" or "backward" or "update".
        ran_eagerly: True if code that the user compiled ran eagerly.
    """

    calls: list[tuple[SyncCall, str, str, Source | None]] = field(default_factory=list)
    methods: list[tuple[str, str, Source | None, str]] = field(default_factory=list)
    ran_eagerly: bool = False

    def of_graphs(self, names: Set[str] | None) -> RecordedCalls:
        """Return the calls of some graphs; all calls for `None`."""
        if names is None:
            return self
        calls = [call for call in self.calls if call[1] in names]
        methods = [method for method in self.methods if method[3] in names]
        return RecordedCalls(calls, methods, self.ran_eagerly)


def eager_calls(graphs: Sequence[Graph], ops: Iterable[EagerOp]) -> RecordedCalls:
    """Return the calls of eager ops that may sync or copy, each with its own line.

    Eager graphs with equal dataflow are merged, so their nodes have only the lines of the first
    run.

    Args:
        graphs: the eager graphs.
        ops: every op call of the graphs. The calls of one run follow the order of the nodes.
    """
    calls_of_graph = {}
    for graph in graphs:
        results = {node.name: node.result for node in graph.nodes}
        graph_calls = [_call(call.node, results) for call in calls((graph,))]
        calls_of_graph[graph.name] = itertools.cycle(graph_calls)  # a graph may run several times
    recorded = RecordedCalls()
    for op in ops:
        call = next(calls_of_graph[op.graph])
        if may_sync_or_copy(call.op) and not op.reads_step_count:
            recorded.calls.append((call, op.graph, op.module, op.source))
    return recorded


Event: TypeAlias = Sync | Transfer
"""A host sync or a device copy."""


def recorded_events(recorded: RecordedCalls) -> tuple[Event, ...]:
    """Return the syncs and transfers among recorded calls."""
    events: list[Event] = []
    for call, graph, module, source in recorded.calls:
        events += _events_of(call, sync_kind(call), graph, _place(source, module))
    methods: list[Sync] = []
    threads: list[Event] = []
    for name, module, source, _ in recorded.methods:
        place = _place(source, module)
        if name == STARTS:
            threads += _uncertain(THREADS, STARTS, CALL, place)
        elif METHODS[name]:
            methods.append(Sync(METHODS[name], f"Tensor.{name}", CALL, **place))
    return _merge_equal([*events, *_on_new_lines(methods, events), *threads])


def compiled_events(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    printed: PrintedGraphs | None = None,
    hooks: PrintedGraphs | None = None,
    eager: RecordedCalls | None = None,
) -> tuple[Event, ...]:
    """Return the syncs and transfers of compiled code, its eager ops and its graph breaks.

    A sync at a graph break that is also among the eager ops is reported once, as an eager op.

    Args:
        graphs: graphs at the capture's level.
        breaks: the graph breaks.
        printed: graphs of the same capture at all levels; `None` if there are no other levels.
        hooks: Dynamo's graphs of a captured backward, traced up to its first break. The graph of
            the backward only calls hooks; Dynamo's graphs contain their ops. `None` for other
            captures.
        eager: calls that ran eagerly, outside the graphs; `None` if they were not recorded.
    """
    events = list(_graph_events(graphs))
    if hooks is not None:
        known = set(map(_line_and_kind, events))
        hook_events = _graph_events(hooks.at("dynamo"))
        events += [event for event in hook_events if _line_and_kind(event) not in known]
    # Search the text first: reading the graphs of another level takes time.
    if printed is not None and any(
        ".cpu()" in text
        for compilation in printed.record.compiled
        for text in compilation.texts("dynamo")
    ):
        cpu_calls = [
            replace(event, seen=CALL)
            for event in _graph_events(printed.at("dynamo"))
            if isinstance(event, Sync) and event.op == "Tensor.cpu"
        ]
        events += _on_new_lines(cpu_calls, events)
    eager_events = () if eager is None else recorded_events(eager)
    recorded = {
        (event.file, event.line, kind)
        for event in eager_events
        if isinstance(event, Sync)
        for kind in _BREAKING_AS.get(event.kind, ())
    }
    events_at_breaks = [
        event
        for graph_break in breaks
        for event in _break_events(graph_break, hooks is not None)
        if not event.certain or _line_and_kind(event) not in recorded
    ]
    return _merge_equal([*events, *eager_events, *events_at_breaks])


def _line_and_kind(event: Event) -> tuple[str, int, str]:
    """Return file, line, and the kind of a sync or the source device of a transfer."""
    return event.file, event.line, event.kind if isinstance(event, Sync) else event.source


def _events_of(call: SyncCall, kind: str, seen: str, place: dict[str, Any]) -> Iterator[Event]:
    """Yield the sync, if a call has this kind of sync, and the transfer of the call."""
    if kind:
        yield Sync(kind, call.op, seen, **place)
    copy = device_copy_of(call)
    if copy is not None:
        yield Transfer(copy.source, copy.target, call.op, copy.blocking, seen, **place)


def _uncertain(kind: str, op: str, seen: str, place: dict[str, Any]) -> tuple[Event, Event]:
    """Return a sync and a transfer of unrecorded code, which may or may not occur."""
    sync = Sync(kind, op, seen, **place, certain=False)
    return sync, Transfer("", "", op, False, seen, **place, certain=False)


def _graph_events(graphs: Sequence[Graph]) -> Iterator[Event]:
    """Yield the events of the calls in graphs.

    A size that depends on data is a sync only where its symbol appears first.
    """
    inputs = tuple(node.result for top in graphs for graph in top.walk() for node in graph.inputs)
    known_symbols = symbols_in(inputs)
    for name, node, call in _calls(graphs):
        kind = sync_kind(call, known_symbols)
        known_symbols |= symbols_in(call.result)
        yield from _events_of(call, kind, name, _place(node.source, node.module))


def _calls(graphs: Iterable[Graph]) -> Iterator[tuple[str, Node, SyncCall]]:
    """Yield the nodes of graphs and subgraphs, with the name of the outermost graph."""
    for top in graphs:
        for graph in reversed(list(top.walk())):  # subgraphs first: they may create symbols
            results = {node.name: node.result for node in graph.nodes}
            for node in graph.nodes:
                if node.is_call:
                    yield top.name, node, _call(node, results)


def _call(node: Node, results: dict[str, Any]) -> SyncCall:
    """Return the call of a node, with the results of its operand nodes."""
    args, kwargs = map_arg(
        (node.args, dict(node.kwargs)),
        lambda value: results.get(value.name) if isinstance(value, Ref) else value,
    )
    return SyncCall(node.op, args, kwargs, node.result).unwrapped()


def _break_events(graph_break: GraphBreak, only_traced: bool) -> Iterator[Event]:
    """Yield the events at a graph break: the sync of a known op, uncertain events, both, or none.

    Args:
        graph_break: the break.
        only_traced: True if captured backwards were traced only up to their first break.
    """
    # With the prefix, Dynamo did not resume after the break.
    break_kind = graph_break.kind.removeprefix(SKIPPED)
    place = _place(graph_break, graph_break.module)
    covers_rest_of_frame = break_kind != graph_break.kind or (
        only_traced and graph_break.compile_id.startswith("!")
    )
    for prefix, kind, op in _KNOWN:
        if break_kind.startswith(prefix):
            operator_match = _OPERATOR.search(graph_break.reason)
            op = op or (operator_match[1] if operator_match else break_kind)
            yield Sync(kind, op, BREAK, **place, occurrences=graph_break.occurrences)
            break
    else:  # an unknown op, or code of any kind
        if not covers_rest_of_frame and not break_kind.startswith(_WITHOUT_OP):
            yield from _uncertain(BREAKS, break_kind, BREAK, place)
    if covers_rest_of_frame:
        yield from _uncertain(BREAKS, f"{SKIPPED}{break_kind}", BREAK, place)


def _place(origin: Source | GraphBreak | None, module: str) -> dict[str, Any]:
    """Return the arguments of `SourceLocation` for a line and a module."""
    origin = origin or Source("", 0)
    return {
        "file": origin.file,
        "line": origin.line,
        "code": origin.code,
        "function": origin.function,
        "module": module,
    }


def _on_new_lines(candidates: Iterable[Sync], recorded: Iterable[Event]) -> list[Sync]:
    """Return the syncs on lines that have no recorded sync.

    Off the CPU, a method call also dispatches an op that is a sync on the same line.
    """
    lines = {
        (event.file, event.line)
        for event in recorded
        if isinstance(event, Sync) and event.kind in (READS, COPIES)
    }
    return [sync for sync in candidates if (sync.file, sync.line) not in lines]


def _merge_equal(events: Iterable[Event]) -> tuple[Event, ...]:
    """Merge equal syncs or transfers and add up their occurrences."""
    merged: dict[Event, Event] = {}
    for event in events:
        # The first of equal events keeps its `seen` and `code`; graphs and calls differ in them.
        key = replace(event, occurrences=1, seen="", code="")
        earlier = merged.get(key)
        count = event.occurrences + (0 if earlier is None else earlier.occurrences)
        merged[key] = replace(event if earlier is None else earlier, occurrences=count)
    return tuple(merged.values())
