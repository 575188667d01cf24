"""Recorders, and the observers that are installed in torch while a recorder is open.

No observer changes the behaviour of the watched code:

    observer                                  events
    a handler of torch's structured trace     each compilation: graphs, breaks, guards, failures
    `entries`, called by `compile_wrapper`    each call of a compiled callable
    Dynamo's guard hook                       each lookup of a frame in Dynamo's cache
    a wrapper of Dynamo's skip reasons        each frame that Dynamo leaves to the interpreter
    a wrapper of `_in_hop_compile`            each compiled callable that torch.export traces
    a wrapper of precompiled modules          each call of precompiled code
    a wrapper of `AOTCompiledFunction`        each call of a function compiled ahead of time
    a wrapper of the stack of a graph break   the frames and the module of the break
    a wrapper of AOTAutograd's saving         compiled code that AOTAutograd does not save
    a wrapper of compiled autograd's capture  each captured backward, whose runs it counts
    a silent logger of compiled autograd      the reasons of compiled autograd's cache misses
    `executions`                              each run of a compiled graph or of its backward

All observers are process-wide, so every thread is seen. Closing the last recorder removes them,
except for the counters of captured backwards, which compiled autograd's cache holds.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ... import torch_private
from ...convert.process_groups import mesh_dimensions
from ...convert.refused_nodes import describe_refused
from ...convert.source_lines import is_user_file
from ...errors import TorchGraphError
from ..guard_text import GuardLine
from ..guards import observe_guard
from .callables import AOT_COMPILED, PRECOMPILED, CallableTable, report_errors
from .entries import CompiledCallables
from .executions import Counts, Executions
from .structured_trace import (
    HAND_OVER,
    NAMES,
    NAMES_WITHOUT_GRAPHS,
    CacheEvent,
    CodeGenerated,
    CompilationFinished,
    CompilationStarted,
    CompileId,
    Event,
    GraphBreakEvent,
    GraphPrinted,
    GuardsFailed,
    SizeFixed,
    read_event,
)

Counters = dict[str, Counter[Any]]
"""A copy of `torch._dynamo.utils.counters`. As in torch, a group without counts is empty."""


@dataclass(frozen=True)
class State:
    """All counts at one moment, or over some time.

    Attributes:
        executed: run count of each compiled graph since the observers were installed.
        counters: Dynamo's counters, which count since the process started.
        callables: compiled callables that were called since the observers were installed.
        compiled: names of the graphs with a counter.
    """

    executed: Counts = field(default_factory=Counter)
    counters: Counters = field(default_factory=dict)
    callables: CallableTable = field(default_factory=dict)
    compiled: frozenset[str] = frozenset()

    def added(self, now: State, before: State) -> State:
        """Return these counts, and what was counted between two moments."""
        counters: Counters = defaultdict(Counter, self.counters)  # as torch's own counters
        for group, values in now.counters.items():
            earlier = before.counters.get(group, Counter())
            changes = {key: n - earlier[key] for key, n in values.items() if n != earlier[key]}
            if changes:  # indexing `counters` would create an empty group
                counters[group] = Counter(counters[group])
                counters[group].update(changes)
        callables = dict(self.callables)
        for key, callee in now.callables.items():
            later = callee.since(before.callables.get(key))
            if later.entries:
                # A new number: those of `now` begin at 0 each time the observers are installed.
                callables[len(callables)] = later
        executed = self.executed + (now.executed - before.executed)
        compiled = self.compiled | (now.compiled - before.compiled)
        return State(executed, counters, callables, compiled)


class EventRecorder:
    """Records events while it is open. It can be reopened, and opened more than once.

    Attributes:
        events: records of torch's trace, in order.
        disabled: the setting that disabled `torch.compile` while it was open, "" if none did.
        opened: True if it was ever open.
        was_paused: True if a capture ran while it was open.
        broken: an error of this package during recording, `None` if there was none. After an error,
            the record is unreliable.
        mesh_dimensions: purpose of each process group, keyed by torch's name for it. Includes all
            groups that existed when a graph was printed, because they may be gone when it is read.
        passive: True if a capture may run while it is open; the capture is then not recorded.
        with_graphs: True to record the graphs and code that torch prints. Printing them takes torch
            longer than all other records.
        with_keys: True to record the parts of cache keys, which take 60 kB per lookup.
    """

    def __init__(
        self, *, passive: bool = False, with_graphs: bool = True, with_keys: bool = False
    ) -> None:
        self.passive = passive
        self.with_graphs = with_graphs
        self.with_keys = with_keys
        self.opened = False
        self.was_paused = False
        self.events: list[Event] = []
        self.mesh_dimensions: dict[str, str] = {}
        self.broken: Exception | None = None
        self.disabled = ""
        self._depth = 0
        self._before = State()
        self._total = State()

    @property
    def is_open(self) -> bool:
        """True while it is recording."""
        return self._depth > 0

    @property
    def saw_nothing(self) -> bool:
        """True if nothing was compiled, called or run while it was open.

        Valid only after it is closed.
        """
        return not (self.events or self._total.executed or self._total.callables)

    def add(self, event: Event) -> None:
        """Record an event."""
        if self.with_graphs or not isinstance(event, GraphPrinted | CodeGenerated):
            if isinstance(event, CacheEvent) and not self.with_keys:
                event = replace(event, components=())
            self.events.append(event)
        if self.with_graphs and isinstance(event, GraphPrinted):
            self.mesh_dimensions.update(mesh_dimensions())

    def open(self, now: State) -> bool:
        """Begin recording. Return False if it was already open."""
        self._depth += 1
        self.opened = True
        if self._depth == 1:
            self._before = now
        return self._depth == 1

    def close(self, now: State) -> bool:
        """End recording. Return False if it stays open because it was opened more than once."""
        self._depth -= 1
        if self._depth == 0:
            self._total = self.counted(now)
            self._before = State()
        return self._depth == 0

    def counted(self, now: State | None) -> State:
        """Return what was counted while this was open.

        Args:
            now: the current state, `None` if it is closed.
        """
        return self._total if now is None else self._total.added(now, self._before)


class IdleRecorder(EventRecorder):
    """Keeps the observers installed between other recorders, and records only Dynamo's counters."""

    def __init__(self) -> None:
        super().__init__(passive=True, with_graphs=False)

    def add(self, event: Event) -> None:
        """Drop the event."""

    def counted(self, now: State | None) -> State:
        """Return Dynamo's counters."""
        return State(counters=super().counted(now).counters)


_EXPORTED = "torch.export is tracing, so torch.compile does nothing"
_GENERATOR = """Attempt to trace generator
  Explanation: Generators cannot be compiled directly with `torch.compile`.
  Hint: Call a generator from inside of a non-generator Python function and compile that function \
instead."""
"""Dynamo's report for the frame of a generator."""
_PACKAGE = __package__.partition(".")[0]
SKIPPED_BY_DYNAMO = (f"{_PACKAGE}.watching", f"{_PACKAGE}.convert")
"""Packages that Dynamo must skip: observers of compiled autograd run inside compiled code."""


class Hub:
    """Installs the observers and passes their events to every open recorder."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: list[EventRecorder] = []
        self._installed = contextlib.ExitStack()
        self._executions = Executions()
        self._callables = CompiledCallables(self._executions, self._failed)
        # Stack and module of the next graph break, shared by all threads: Dynamo holds a lock
        # (`compile_lock`) while it compiles.
        self._stack: list[tuple[str, int, str, str]] = []
        self._module = ""
        # Reason of the last graph break in this compilation, in case Dynamo skips the frame.
        self._break_reason = ""
        self._names: set[str] = set()  # of the records that torch shall write
        self._ending: set[int] = set()  # threads in which compiled autograd ends a capture
        # Of all watches, because a guard may belong to a compilation in an earlier watch. The keys
        # are addresses of torch's compile ids, which are kept, because equal ids return after a
        # reset.
        self._fixed: dict[int, tuple[Any, dict[str, SizeFixed]]] = {}
        self._sees_unsaved = False

    # -- for recorders ---------------------------------------------------------------------------

    def open(self, recorder: EventRecorder) -> None:
        """Open a recorder. The first open recorder installs the observers."""
        with self._lock:
            if not self._open:
                self._install()
            # After the observers are installed, because the run counts start there.
            if recorder.open(self._state()):
                self._open.append(recorder)
                self._choose_names()

    def close(self, recorder: EventRecorder) -> None:
        """Close a recorder. Closing the last open recorder removes the observers."""
        with self._lock:
            if recorder.close(self._state()):
                self._open.remove(recorder)
                self._choose_names()
                # Read now, because the setting may be active only inside the watch, for example by
                # `config.patch`.
                recorder.disabled = torch_private.compile_is_disabled() or recorder.disabled
                if not self._open:
                    self._installed.close()

    def look(self, recorder: EventRecorder) -> State | None:
        """Return the current counts, `None` if the recorder is closed.

        Also note in `recorder.disabled` if compilation is switched off now.
        """
        with self._lock:
            if not recorder.is_open:
                return None
            recorder.disabled = torch_private.compile_is_disabled() or recorder.disabled
            return self._state()

    @property
    def watching(self) -> bool:
        """True if a recorder is open that is not passive, which is a watch of the user's."""
        return any(not recorder.passive for recorder in self._open)

    @contextlib.contextmanager
    def recording(self, recorder: EventRecorder | None) -> Iterator[None]:
        """Keep a recorder open inside the context. Do nothing if it is `None`."""
        if recorder is None:
            yield
            return
        self.open(recorder)
        try:
            yield
        finally:
            self.close(recorder)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Close every open recorder inside the context, so that they record nothing of it."""
        with self._lock:
            paused = []
            for recorder in list(self._open):
                recorder.was_paused = True
                while recorder.is_open:  # it is opened once for each `with` block of the watch
                    self.close(recorder)
                    paused.append(recorder)
        try:
            yield
        finally:
            for recorder in paused:
                self.open(recorder)

    def _choose_names(self) -> None:
        """Make torch write only the records that an open recorder wants."""
        with_graphs = any(recorder.with_graphs for recorder in self._open)
        # The trace's handler refers to this set, so change it in place.
        self._names.clear()
        self._names.update(NAMES if with_graphs else NAMES_WITHOUT_GRAPHS)

    def _state(self) -> State:
        """Return copies of all counts as they are now."""
        counters = {
            group: Counter(values) for group, values in torch_private.get("counters").items()
        }
        executed = self._executions.counts()
        return State(
            executed,
            counters,
            self._callables.table(),
            compiled=frozenset(graph.name for graph in executed),
        )

    # -- observers -------------------------------------------------------------------------------

    def _install(self) -> None:
        """Install all observers. `self._installed` removes them."""
        torch_private.leave_alone(*SKIPPED_BY_DYNAMO)
        self._callables = CompiledCallables(self._executions, self._failed)
        with contextlib.ExitStack() as stack:
            stack.callback(self._callables.clear)
            stack.callback(self._executions.detach)
            self._executions.attach_compiled()
            # Synchronous: events arrive while Dynamo's frames, and its data about a cache miss,
            # still exist.
            stack.enter_context(torch_private.structured_trace(self._record, self._names))
            stack.enter_context(torch_private.on_entry(self._callables.observer))
            stack.enter_context(torch_private.guard_hook(self._cache_hit_hook()))
            stack.enter_context(
                torch_private.on_precompiled_call(partial(self._record_call, PRECOMPILED))
            )
            observers: dict[Callable[[Any], Any], Any] = {
                torch_private.on_skip: self._skipped,
                torch_private.on_traced_call: partial(self._record_call, _EXPORTED),
                torch_private.on_aot_compiled_call: partial(self._record_call, AOT_COMPILED),
                torch_private.on_break_stack: self._record_break_stack,
            }
            for observe, callback in observers.items():
                with contextlib.suppress(TorchGraphError):  # a torch without the function
                    stack.enter_context(observe(callback))
            # `_install_unsaved_observer` adds its observer to this stack later. AOTAutograd's cache
            # is imported only by a compilation, and importing it here would cost every watched
            # test.
            stack.callback(setattr, self, "_sees_unsaved", False)
            stack.enter_context(
                torch_private.on_compiled_autograd_capture(self._count_capture, self._ending)
            )
            # Compiled autograd computes the reason for a cache miss only if a logger is installed;
            # `torch._dynamo.reset()` removes it.
            stack.enter_context(torch_private.compiled_autograd_reasons())
            self._installed = stack.pop_all()

    def _cache_hit_hook(self) -> Callable[[bool], Any]:
        """Return a guard hook that records cache hits and misses.

        The hook returns an object, and Dynamo tests its truth value. For a hit, its `__bool__`
        records the hit in C, without a Python frame. For a miss, it calls `missed`. Each object has
        a class of its own, because Python looks up `__bool__` in the class.
        """
        hit = type("Found", (), {"__bool__": staticmethod(self._callables.count_hit)})()
        miss = type("Missed", (), {"__bool__": staticmethod(self._callables.missed)})()
        return {True: hit, False: miss}.__getitem__

    def _failed(self, error: Exception) -> None:
        for recorder in self._open:
            recorder.broken = recorder.broken or error

    @report_errors
    def _record(self, metadata: dict[str, Any], payload: str) -> None:
        """Pass a record of torch's trace to the recorders, and then to the other observers."""
        event = read_event(metadata, payload)
        if event is None:
            return
        event = self._with_live_facts(event)
        self._publish(event)
        match event:
            case GraphBreakEvent():
                self._callables.broke(event.report)
            case CompilationStarted():
                self._callables.started(event)
            case CompilationFinished():
                # torch writes the metrics before the compiled code first runs, so its first run is
                # counted.
                has_graph = self._executions.attach_new(event)
                self._callables.finished(event, has_graph=has_graph)

    def _with_live_facts(self, event: Event) -> Event:
        """Return an event with what its record lacks, read from torch while it writes the record.

        Also keep what a later event needs: the reason of a graph break, and fixed sizes.
        """
        match event:
            case GraphBreakEvent():
                hand_over = HAND_OVER in event.report and torch_private.compiled_autograd_is_on()
                event = replace(
                    event, hand_over=hand_over, stack=tuple(self._stack), module=self._module
                )
                self._stack, self._module = [], ""  # of this break only
                # Without the line that torch 2.10 puts before the reason.
                self._break_reason = re.sub(
                    r"(?s)^.*?Graph Break Reason: ([^\n]*:\n\n)?", "", event.report
                )
            case GraphPrinted() if event.stage == "dynamo":
                event = replace(
                    event,
                    files=torch_private.traced_files(),
                    shape_env=torch_private.shape_env(),
                )
            case GuardsFailed():
                miss = torch_private.cache_miss()
                event = replace(
                    event,
                    observations=tuple(observe_guard(reason, miss) for reason in event.reasons),
                    # The sizes that earlier compilations of this code have fixed.
                    fixed={
                        str(entry.compile_id): self._fixed[id(entry.compile_id)][1]
                        for entry in (miss.entries if miss is not None else ())
                        if id(entry.compile_id) in self._fixed
                    },
                )
            case SizeFixed():
                event = replace(
                    event, stack=tuple(GuardLine(*line) for line in torch_private.traced_lines())
                )
                compile_id = torch_private.get("compile_id")()  # the object, which an entry has too
                sizes = self._fixed.setdefault(id(compile_id), (compile_id, {}))[1]
                sizes.update(dict.fromkeys(event.sources, event))
            case CompilationStarted():
                self._break_reason = ""
                code = torch_private.code_being_compiled()
                code_ref = code and weakref.ref(code)
                hash(code_ref)  # now, because the code may be freed
                event = replace(
                    event,
                    callable_name=self._callables.current_name,
                    code_ref=code_ref,
                    own_resets=torch_private.own_resets(),
                )
            case CompilationFinished():
                if event.lowered:
                    event = replace(event, cache_off=torch_private.caches_switched_off())
                event = event if event.file else _add_code(event)
                # Dynamo gave the frame up at a graph break, and reports a success.
                if self._break_reason and not event.failure and torch_private.gave_up_frame():
                    event = replace(event, failure="SkipFrame", reason=self._break_reason)
            case CacheEvent():
                self._install_unsaved_observer()
                event = _add_lookup_facts(event)
        return event

    def _publish(self, event: Event) -> None:
        """Pass an event to every open recorder, unless it is about code of torch's own."""
        # While compiled autograd ends a capture, outside the captured backward.
        if event.id and event.id.autograd is None and threading.get_ident() in self._ending:
            # torch 2.14 compiles functions of `inspect` there, which have no graph.
            code = torch_private.code_being_compiled()
            if code and not is_user_file(code.co_filename):
                return
        for recorder in self._open:
            recorder.add(event)

    @report_errors
    def _skipped(self, reason: str, frame: Any) -> None:
        """Record a frame that Dynamo leaves to the interpreter."""
        self._callables.skipped(reason, frame)
        code = frame.f_code
        # The only frames that Dynamo gives up without a compile id, so its trace omits them.
        # The standard library and sympy also have generators, which compilers run.
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        is_user = is_user_file(code.co_filename) and package not in ("sympy", "mpmath")
        if code.co_flags & inspect.CO_GENERATOR and is_user and reason in torch_private.GAVE_UP:
            location = code.co_name, code.co_filename, code.co_firstlineno
            self._publish(CompilationFinished(None, 0, *location, "Unsupported", _GENERATOR))

    @report_errors
    def _record_call(self, reason: str, call: Any) -> None:
        """Record a call of a compiled callable that Dynamo does not see."""
        self._callables.traced(call, reason)

    @report_errors
    def _record_break_stack(self, frames: Iterable[Any], find_module: Callable[[], str]) -> None:
        """Note the stack and module of the graph break that Dynamo is about to report."""
        self._module = find_module()
        self._stack = [
            (frame.filename or "", frame.lineno or 0, frame.name, (frame.line or "").strip())
            for frame in frames
        ]

    def _install_unsaved_observer(self) -> None:
        """Install the observer of code that AOTAutograd does not save.

        Called when the module of AOTAutograd's cache has been imported.
        """
        if not self._sees_unsaved:
            self._sees_unsaved = True
            with contextlib.suppress(TorchGraphError):
                self._installed.enter_context(torch_private.on_unsaved(self._record_unsaved))

    @report_errors
    def _record_unsaved(self, compile_id: Any, backward: bool) -> None:
        """Record compiled code that AOTAutograd does not save, because a graph has no op."""
        id = None
        if compile_id is not None:
            id = CompileId(
                compile_id.compiled_autograd_id, compile_id.frame_id, compile_id.frame_compile_id
            )
        self._publish(CacheEvent(id, 0, "aot", "unsaved", backward))

    def _count_capture(self, number: int, call: Any) -> Any:
        """Return a captured backward with a counter of its runs."""
        try:
            return self._executions.capture(CompileId(number), call)
        except Exception as error:  # our error must not end the user's backward
            self._failed(error)
            return call


def _add_lookup_facts(event: CacheEvent) -> CacheEvent:
    """Add the direction of the graph, and for a bypass the refused ops.

    Call it while torch reports the lookup, because both are read from torch's frames.
    """
    gm, backward = torch_private.graph_looked_up()
    # Only a bypass has refused nodes to look for.
    if event.state != "bypass":
        return replace(event, backward=backward)
    refused = [torch_private.RefusedNode(None, event.reason)]
    if gm is not None:
        refused = torch_private.nodes_behind(gm, event.reason)
    ops = describe_refused(refused)
    return replace(event, backward=backward, reason=ops[0].reason, refused=ops)


def _add_code(event: CompilationFinished) -> CompilationFinished:
    """Add the code to an event. torch does not name the code when it refuses to recompile it."""
    code = torch_private.code_being_compiled()
    if code is None:
        return event
    return replace(event, function=code.co_name, file=code.co_filename, line=code.co_firstlineno)


HUB = Hub()
"""Hub of this process."""
