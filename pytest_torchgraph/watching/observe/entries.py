"""Calls of compiled callables, and for each whether compiled code ran.

What Dynamo compiles is in its trace; what it silently does not compile is nowhere. So each call of
a compiled callable is noted as it begins: an *entry*. It is judged when the next one begins in the
same thread, or when a watch is read: where Dynamo has served no compiled code since, neither from
its cache nor by compiling, the entry ran eagerly, for the reason that Dynamo gave, if it gave one.

A warm call, served from Dynamo's cache, costs one Python frame of ours:

    what torch does                     what of ours it calls        what is counted
    calls the callable                  entered()                    callee.entries
    finds compiled code                 guard hook (in C)            thread.cache_hits
    runs each graph, its backward       counter (in C)               the runs of the graph

A cold call costs some frames for each record of the trace that it makes:

    calls the callable                  entered(), _enter()          callee.entries
    finds no compiled code that fits    guard hook (in C)            nothing
    record dynamo_start                 started()                    nothing; the entry is set aside
    leaves a frame to the interpreter   add_cause()                  nothing; the cause is kept
    record compilation_metrics          finished()                   thread.compiled_frames
                                        Executions.attach_new()      nothing; counters are put in
    runs each graph, its backward       counter (in C)               the runs of the graph

`_enter` runs at an entry that is not ordinary: of a callable that was not called before, after an
entry that may have run eagerly, after Dynamo left a frame alone, under a stance, or under a
dispatch mode. Tables grow with what is called and compiled, never with a warm call.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

from ... import torch_private
from ...convert.source_lines import is_user_file, original_name
from .callables import (
    UNKNOWN_CAUSE,
    CallableTable,
    CodeKey,
    CompiledCallable,
    EagerCause,
    code_key,
)
from .events import CompilationFinished, CompilationStarted
from .executions import count_of, counting

WRAPPER = "compile_wrapper"
"""Name of the frame of torch's that calls a compiled callable."""


class _Suspended(NamedTuple):
    """The latest entry of a thread, set aside while Dynamo traces a frame.

    Attributes:
        compile_id: the compilation.
        pending, cause, cause_rank: as in `_ThreadState`.
        undecided: whether no compiled code had been served since that entry.
    """

    compile_id: Any
    pending: CompiledCallable | None
    undecided: bool
    cause: EagerCause | None
    cause_rank: int


class _ThreadState:
    """The state of one thread.

    Attributes:
        ident: its `threading.get_ident()`.
        cache_hits: a counter, in C, of how often Dynamo found compiled code in its cache.
        compiled_frames: how often Dynamo compiled a frame.
        pending: the callable that was entered last, None where that entry is judged.
        served_at_entry: `served` when it was entered.
        cause: why Dynamo left a frame alone since, None where it left none.
        cause_rank: 0 for a cause that holds for all code, 1 for one of a frame of the user's or of
            one that failed to compile, 2 for one of a frame of torch's.
        suspended: the entries during which Dynamo is tracing a frame, outermost first: a backend
            may call compiled code itself.
    """

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.cache_hits: Any = counting(partial(bool, 1))
        self.compiled_frames = 0
        self.pending: CompiledCallable | None = None
        self.served_at_entry = 0
        self.cause: EagerCause | None = None
        self.cause_rank = 0
        self.suspended: list[_Suspended] = []

    @property
    def served(self) -> int:
        """How often Dynamo has served compiled code, from its cache or by compiling a frame."""
        return count_of(self.cache_hits) + self.compiled_frames

    def begin(self, event: CompilationStarted) -> None:
        """Set the latest entry aside: Dynamo begins to trace a frame."""
        callee = self.pending
        if callee is not None and callee.code is not None:
            frame = (event.function, event.line)
            if frame == (callee.code.co_name, callee.line) or self.suspended:
                callee.seen_by_dynamo = True  # Dynamo does not say how one inside another one ended
        undecided = self.served_at_entry == self.served
        self.suspended.append(
            _Suspended(event.id, self.pending, undecided, self.cause, self.cause_rank)
        )
        self.pending = self.cause = None

    def end(self, compile_id: Any) -> None:
        """Go on with the entry that was set aside: Dynamo has traced the frame, or given it up."""
        while any(each.compile_id == compile_id for each in self.suspended):
            resumed = self.suspended.pop()
            self.pending = resumed.pending
            self.cause, self.cause_rank = resumed.cause, resumed.cause_rank
            self.served_at_entry = self.served if resumed.undecided else self.served - 1
            if resumed.compile_id == compile_id:
                break

    @property
    def is_in_a_call(self) -> bool:
        """Whether the latest entry has not returned: compiled code runs, or is being compiled."""
        frame = sys._current_frames().get(self.ident)
        while frame is not None and frame.f_code.co_name != WRAPPER:
            frame = frame.f_back
        return frame is not None


class _Local(threading.local):
    """The state of the running thread.

    Attributes:
        state: the state.
        count_hit: `state.cache_hits`, to be called by name in C.
    """

    def __init__(self, threads: list[_ThreadState]) -> None:
        self.state = _ThreadState()
        self.count_hit = self.state.cache_hits
        threads.append(self.state)


class CompiledCallables:
    """The compiled callables that are entered while the observers are installed.

    Attributes:
        count_hit: to be called when Dynamo has found compiled code: counts it for the running
            thread, in C, and returns True.
    """

    def __init__(self) -> None:
        self._threads: list[_ThreadState] = []
        self._local = _Local(self._threads)
        self.count_hit: Callable[[], bool] = partial(methodcaller("count_hit"), self._local)
        self._all: list[CompiledCallable] = []
        self._by_id: dict[int, CompiledCallable] = {}
        self._references: dict[int, Any] = {}
        self._reported: set[CodeKey] = set()
        self._without_graph: set[CodeKey] = set()
        self._failures: dict[CodeKey | None, EagerCause] = {}

    @property
    def current(self) -> str:
        """Name of the compiled callable that this thread entered last, "" for none."""
        pending = self._local.state.pending
        return "" if pending is None else pending.name

    def started(self, event: CompilationStarted) -> None:
        """Take note that Dynamo begins to trace a frame."""
        self._local.state.begin(event)

    def finished(self, event: CompilationFinished, *, has_graph: bool) -> None:
        """Take note that Dynamo compiled a frame, or failed to."""
        thread = self._local.state
        thread.end(event.id)
        key = original_name(event.function), event.file, event.line
        if event.failure:
            reason = first_line(event.reason) or event.failure
            self.add_cause(reason, *key, failed=True)
            self._failures[key] = EagerCause(reason, *key)
        else:
            thread.compiled_frames += 1
            self._reported.add(key)
            (self._without_graph.discard if has_graph else self._without_graph.add)(key)

    def add_cause(
        self,
        reason: str,
        function: str = "",
        file: str = "",
        line: int = 0,
        *,
        failed: bool = False,
    ) -> None:
        """Take note of why something is left to the interpreter: a frame, or all code.

        One cause is kept for an entry: that of the lowest rank (see `_ThreadState.cause_rank`), and
        of several the first, which is of the outermost frame.

        Args:
            reason: Dynamo's words, or ours.
            function, file, line: the frame; "" and 0 where the reason holds for all code.
            failed: whether Dynamo tried to compile it.
        """
        thread = self._local.state
        rank = 0 if not file else 1 if failed or is_user_file(file) else 2
        self._reported.add((function, file, line))
        if thread.cause is None or rank < thread.cause_rank:
            thread.cause, thread.cause_rank = EagerCause(reason, function, file, line), rank

    def observer(self, original: Callable[[], Any]) -> Callable[[], Any]:
        """The function to put in the place of `original`, which torch calls at each entry.

        A call that is repeated a thousand times costs this one Python frame, and nothing grows.
        """
        by_id = self._by_id
        stance_of = torch_private.current_stance()
        modes = torch_private.get("dispatch_mode_count")
        local = self._local

        def entered() -> Any:
            caller = sys._getframe(1)
            if caller.f_code.co_name == WRAPPER:
                thread = local.state
                call = caller.f_locals.get("fn")
                callee = by_id.get(id(call))
                served = thread.cache_hits.cache_info().misses + thread.compiled_frames
                if (
                    callee is None
                    or served == thread.served_at_entry
                    or thread.cause
                    or modes()
                    or stance_of("_stance").stance != "default"
                ):
                    callee = self._enter(thread, call, caller.f_locals.get("callback"))
                callee.entries += 1
                thread.pending = callee
                thread.served_at_entry = served
            return original()

        return entered

    def _enter(self, thread: _ThreadState, call: Any, callback: Any) -> CompiledCallable:
        """Judge the entry before, and note what keeps this one from being compiled.

        Args:
            thread: the running thread.
            call: the callable.
            callback: Dynamo's, which leads to the backend.
        """
        self._judge(thread)
        if id(call) not in self._by_id:
            self._add(call)
            self._by_id[id(call)].backend = torch_private.backend_name(callback)
            self._drop_ended_threads()
        disabled = torch_private.compile_is_disabled()
        if disabled:
            self.add_cause(f"torch.compile is switched off by {disabled}")
        if torch_private.stance() != "default":
            self.add_cause(f"torch.compiler.set_stance({torch_private.stance()!r}) is in force")
        for mode in torch_private.modes_that_stop_compilation():
            self.add_cause(f"{mode} is active: Dynamo compiles nothing under a TorchDispatchMode")
        return self._by_id[id(call)]

    def _add(self, call: Any) -> None:
        """Know a callable from now on, without keeping it alive: it may hold tensors."""
        key = id(call)
        self._by_id[key] = CompiledCallable.of(call)
        self._all.append(self._by_id[key])
        try:
            self._references[key] = weakref.ref(call, lambda _: self._forget(key))
        except TypeError:
            self._references[key] = call  # so that its id stays its own

    def _forget(self, key: int) -> None:
        self._by_id.pop(key, None)
        self._references.pop(key, None)

    def _judge(self, thread: _ThreadState) -> None:
        """Count the latest entry of a thread as eager where no compiled code was served since."""
        callee = thread.pending
        if callee is not None and thread.served_at_entry == thread.served:
            key = None if callee.code is None else code_key(callee.code)
            if thread.cause or key not in self._without_graph:
                cause = thread.cause or self._failures.get(key, UNKNOWN_CAUSE)
                callee.uncompiled[cause] += 1
        thread.pending = thread.cause = None

    def _drop_ended_threads(self) -> None:
        alive = sys._current_frames()
        # A new thread may get the ident of one that ended.
        latest = {thread.ident: thread for thread in self._threads}
        for thread in list(self._threads):
            if thread.ident not in alive or latest[thread.ident] is not thread:
                self._judge(thread)
                self._threads.remove(thread)

    def table(self) -> CallableTable:
        """Copies of all callables, as they are at this moment."""
        running = self._local.state
        for thread in self._threads:
            if thread is running or not thread.is_in_a_call:
                self._judge(thread)
        return {number: self._copy(callee) for number, callee in enumerate(self._all)}

    def _copy(self, callee: CompiledCallable) -> CompiledCallable:
        """A copy, in which calls made inside the call of another callable are judged as well.

        Code that is served to the outer call afterwards looks as if it were served to the inner
        one. But a callable whose code Dynamo never reported was not compiled: all its calls that
        are over ran eagerly.
        """
        copy = callee.since(None)
        code = callee.code
        if code is None or callee.inlined or callee.seen_by_dynamo:
            return copy
        if code_key(code) not in self._reported:
            unfinished = sum(thread.pending is callee for thread in self._threads)
            missing = callee.entries - copy.uncompiled.total() - unfinished
            copy.uncompiled += Counter({UNKNOWN_CAUSE: missing})
        return copy

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        self._by_id.clear()
        self._references.clear()
        self._threads.clear()


def first_line(text: str) -> str:
    """The first line that is not blank, "" for none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
