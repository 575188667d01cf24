"""Calls of compiled callables, each judged compiled or eager.

Dynamo's trace shows what Dynamo compiles, but not what it silently leaves uncompiled. Each call of
a compiled callable is therefore recorded when it begins and judged when it ends. The call ran
eagerly if Dynamo neither found compiled code in its cache nor compiled any, or if that code ran no
graph, because Dynamo skipped a frame. The reason is Dynamo's, if Dynamo gave one.

A warm call, served from Dynamo's cache, costs one Python frame of this package:

    what torch does                     what of ours it calls        what is recorded
    calls the callable                  entered()                    callee.entries; current call
    finds compiled code                 guard hook (in C)            HIT in the call
    runs each graph, its backward       counter (in C)               the runs of the graph
    returns                             setattr, dict.pop (in C)     the outer call goes on

A warm call is judged when the next call begins, or when a watch is read. Other calls are judged
when they return (`_leave`):

- the first call of a callable,
- a call under a stance or a dispatch mode,
- a call after a call that may have run eagerly,
- a call in which other calls or compilations begin,
- calls of a callable that has not run a compiled graph yet.

torch calls `_leave` itself: the `finally` of `compile_wrapper` runs its list `cleanups`.

    calls the callable                  entered(), _enter()          callee.entries; current call
    finds no compiled code that fits    guard hook, missed()         call.misses
    record dynamo_start                 started()                    the call is interrupted
    leaves a frame to the interpreter   skipped()                    call.cause
    record compilation_metrics          finished()                   COMPILED in the call
                                        Executions.attach_new()      counters are installed
    runs each graph, its backward       counter (in C)               the runs of the graph
    returns or raises                   _leave()                     callee.uncompiled

A nested call is judged separately and does not affect the outer call. A call that raises is not
judged, because its caller gets no result. Tables grow with the number of callables and
compilations, never with warm calls.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from types import FrameType
from typing import Any

from ... import torch_private
from ...convert.source_lines import callers, is_user_file
from .callables import (
    ACTIVE,
    COMPILED,
    EAGER_STANCES,
    HIT,
    NO_OPS_EARLIER,
    RUN_ONLY,
    WITHOUT_GRAPH,
    Call,
    CallableTable,
    CallKind,
    CompileAttempts,
    CompiledCallable,
    EagerCause,
    InterruptedCall,
    ThreadCalls,
    ThreadState,
    cause_of_setting,
    cause_of_stance,
    code_key,
    explain_partial,
    has_no_ops,
    read_disabled,
    report_errors,
)
from .executions import Executions
from .structured_trace import CompilationFinished, CompilationStarted

WRAPPER = "compile_wrapper"
"""Name of torch's frame that calls a compiled callable."""


class CompiledCallables:
    """Compiled callables that are called while the observers are installed.

    Args:
        executions: the counters of compiled graphs.
        failed: receives an error of this package in the middle of a user's call.

    Attributes:
        count_hit: called after Dynamo finds compiled code; records the hit for the running thread,
            in C, and returns True.
    """

    def __init__(self, executions: Executions, failed: Callable[[Exception], None]) -> None:
        self._executions = executions
        self._failed = failed
        self._threads: list[ThreadCalls] = []
        self._local = ThreadState(self._threads)
        self.count_hit: Callable[[], bool] = partial(methodcaller("hit", HIT, True), self._local)
        self._all: list[CompiledCallable] = []
        self._by_id: dict[int, CompiledCallable] = {}
        self._references: dict[int, Any] = {}
        self._reasons = CompileAttempts()

    # -- what Dynamo does --------------------------------------------------------------------------

    @property
    def current_name(self) -> str:
        """Name of the compiled callable that this thread is calling, "" if there is none."""
        callee = self._local.current.callee
        return "" if callee is None else callee.name

    def missed(self) -> bool:
        """Record that Dynamo has no compiled code that fits a frame."""
        call = self._local.current
        call.misses += 1
        if not call.judged_at_end:  # it may raise: `error_on_recompile`, or the eager code itself
            self._judge_at_end(call)
        return True  # the result of `__bool__`, see `Hub._cache_hit_hook`

    def started(self, event: CompilationStarted) -> None:
        """Record that Dynamo begins to trace a frame."""
        local = self._local
        call = local.current
        self._explain_miss(call, torch_private.code_being_compiled())
        if not call.judged_at_end:
            self._judge_at_end(call)
        local.calls.compiling.append(InterruptedCall(event.id, call))
        # Until the compilation ends, calls in it, such as a backend's, belong to no callable.
        local.hit = Call(local).setdefault

    def broke(self, report: str) -> None:
        """Record a graph break that Dynamo reports while tracing."""
        compiling = self._local.calls.compiling
        if compiling and (reason := read_disabled(report)):
            _add_cause(compiling[-1].call, EagerCause("disabled", reason), _DISABLED)

    def finished(self, event: CompilationFinished, *, has_graph: bool) -> None:
        """Record that Dynamo compiled a frame, or failed to."""
        compiling = self._local.calls.compiling
        indices = [
            index
            for index, interrupted in enumerate(compiling)
            if interrupted.compile_id == event.id
        ]
        if indices:
            # Compilations after it began inside it, and have ended without a report.
            compiling[indices[-1]].call.resume()
            del compiling[indices[-1] :]
        call = self._local.current
        key = event.function, event.file, event.line
        if not event.failure:
            call[COMPILED] = True
            self._reasons.compiled(key, has_graph=has_graph, call=call)
            for callee in self._all:
                # Dynamo tries the newest compilation first, so this one may also serve other
                # callables of the file.
                file = "" if callee.code is None else callee.code.co_filename
                callee.unproven = callee.unproven or file == event.file
            return
        cause = self._reasons.failed(key, event.failure, event.reason)
        if cause.kind == "limit":
            self._explain_miss(call, torch_private.code_being_compiled())
            call.partial_cause = call.partial_cause or cause
        _add_cause(call, cause, _FRAME)

    @report_errors
    def skipped(self, reason: str, frame: Any) -> None:
        """Record that Dynamo leaves a frame to the interpreter.

        Args:
            reason: Dynamo's words.
            frame: the frame.
        """
        code = frame.f_code
        if _is_in_collection(frame):
            return
        call = self._local.current
        self._explain_miss(call, code)
        key = code_key(code)
        # Before torch 2.13, Dynamo gives no reason after it compiled a frame without a graph.
        without_graph = COMPILED in call and key in self._reasons.without_graph
        if has_no_ops(reason) or without_graph:
            self._reasons.compiled(key, has_graph=False, call=call)
        elif disabled := torch_private.compile_is_disabled():
            _add_cause(call, cause_of_setting(disabled))
        else:
            kind: CallKind = "disabled" if "disabled" in reason else "skipped"
            rank = _FRAME if is_user_file(code.co_filename) else _FRAME_OF_TORCH
            _add_cause(call, EagerCause(kind, reason, *key), rank)

    def _explain_miss(self, call: Call, code: Any) -> None:
        """Uncount a miss of code that Dynamo is handling now: the interpreter has not run it.

        Args:
            call: the call in which the miss was counted, if it was.
            code: the code of the frame, `None` if unknown.
        """
        if call.misses and code is not None and torch_private.is_compiled_code(code):
            call.misses -= 1

    # -- calls -------------------------------------------------------------------------------------

    def observer(self, original: Callable[[], Any]) -> Callable[[], Any]:
        """Return the replacement for `original`, which torch calls at each entry.

        A warm call costs only this one Python frame, and no table grows.
        """
        by_id = self._by_id
        stance_of = torch_private.current_stance()
        modes = torch_private.get("dispatch_mode_count")
        local = self._local

        def entered() -> Any:
            caller = sys._getframe(1)
            if caller.f_code.co_name != WRAPPER:  # torch calls `original` elsewhere too
                return original()
            try:
                variables = caller.f_locals
                cleanups = variables.get("cleanups")
                callee = by_id.get(id(variables.get("fn")))  # `None` at its first call
                outer = local.hit.__self__
                if not outer.judged_at_end:  # then it is `last`, which this call reuses
                    self._judge_at_end(outer)
                call = local.calls.last
                if (
                    callee is None
                    or callee.unproven
                    or len(call) != 1  # the last call is still running, or Dynamo compiled in it
                    or HIT not in call
                    or call.misses
                    or call.cause
                    or call.partial_cause
                    or cleanups is None
                    or variables.get("callback") is False
                    or modes()
                    or stance_of("_stance").stance != "default"
                ):
                    self._enter(variables)
                else:
                    # A warm call reuses `last`, so no table grows. It is judged when the next call
                    # begins, or when a watch is read.
                    del call[HIT]
                    call[ACTIVE] = True
                    call.callee = callee
                    call.cleanups = cleanups
                    call.judged_at_end = False
                    local.hit = call.setdefault
                    callee.entries += 1
                    cleanups += outer.resume, call.mark_returned
            except Exception as error:  # our error must not end the user's call
                self._failed(error)
            return original()

        return entered

    def traced(self, call: Any, reason: str) -> None:
        """Count an eager call that Dynamo does not see, for example while a tracer is active."""
        callee = self._find_or_add(call, None)
        callee.entries += 1
        callee.uncompiled[EagerCause("skipped", reason)] += 1

    @report_errors
    def _enter(self, variables: Any) -> None:
        """Begin a call that is judged when it returns, and record why it may run eagerly.

        Args:
            variables: the local variables of torch's frame.
        """
        local = self._local
        outer = local.current
        self._judge_last(local.calls)
        callee = self._find_or_add(variables.get("fn"), variables.get("callback"))
        callee.entries += 1
        stance = torch_private.stance()
        call = Call(local, callee)
        call[ACTIVE] = True
        code, without_graph = callee.code, self._reasons.without_graph
        values = (*variables["args"], *variables["kwargs"].values())
        if (
            callee.key in without_graph
            and not (code and (code.co_names or code.co_freevars))
            and all(isinstance(value, int | float | str) for value in values)
        ):  # such code cannot compute without a tensor among its arguments
            without_graph[callee.key] = call
        call.resume()
        mode = RUN_ONLY if variables.get("callback") is False else None
        mode = cause_of_stance(stance) if stance in EAGER_STANCES else mode
        before = self._executions.forward_runs()
        leave = partial(self._leave, call, _handled_exception(), before, mode)
        variables["cleanups"].extend([outer.resume, call.mark_returned, leave])
        if disabled := torch_private.compile_is_disabled():
            _add_cause(call, cause_of_setting(disabled))
        if mode is not None:
            _add_cause(call, mode)
        for dispatch_mode in torch_private.modes_that_stop_compilation():
            words = f"{dispatch_mode} is active: Dynamo compiles nothing under a TorchDispatchMode"
            _add_cause(call, EagerCause("skipped", words))

    def _judge_at_end(self, call: Call) -> None:
        """Arrange for an ordinary running call to be judged when it returns."""
        assert call.cleanups is not None
        runs = self._executions.forward_runs()
        leave = partial(self._leave, call, _handled_exception(), runs, None, call.served)
        call.cleanups.append(leave)
        call.cleanups = None
        call.judged_at_end = True
        thread = self._local.calls
        if thread.last is call:
            thread.last = Call(self._local)
            thread.last.end()

    @report_errors
    def _leave(
        self,
        call: Call,
        handled: int,
        runs_before: Sequence[int],
        mode: EagerCause | None,
        served_before: bool = False,
    ) -> None:
        """Judge a call that returns or raises.

        Args:
            call: the call.
            handled: `_handled_exception()` at the start of the call.
            runs_before: run counts of the graphs at the start of the call.
            mode: the stance or mode under which code may run eagerly, `None` if there is none.
            served_before: True if the call already had compiled code when `_leave` was installed.
        """
        thread, callee = self._local.calls, call.callee
        self._judge_last(thread)
        # Compilations remain here if Dynamo did not report their end: after an exception, or if a
        # backend calls compiled code, which nests one compilation in another.
        numbers = [n for n, interrupted in enumerate(thread.compiling) if interrupted.call is call]
        if numbers:
            del thread.compiling[numbers[0] :]
            code = None if callee is None else callee.code
            if code is not None and torch_private.is_compiled_code(code):
                call[COMPILED] = True
        if callee is None:
            return
        if _handled_exception() != handled:
            callee.raised += 1
            return
        graphs = self._executions.ran_since(runs_before)
        callee.served_by |= graphs
        ran = served_before or bool(graphs)
        if call.served:
            cause = callee.no_graph or self._reasons.explain_failure(callee)
            if not ran:
                # Dynamo's code has no graph for this call, so only its graph breaks ran.
                if call.cause_rank in (_FRAME, _DISABLED):
                    cause = call.cause
                if cause is None and COMPILED not in call:
                    cause = WITHOUT_GRAPH
                call.partial_cause = call.partial_cause or cause
            callee.no_graph = cause
            # With a cause, a call may run no graph even if the call before ran one.
            callee.unproven = not ran or cause is not None
        self._judge(call, mode)

    def _judge_last(self, thread: ThreadCalls) -> None:
        """Judge the latest ordinary call, if it has returned."""
        if ACTIVE not in thread.last:
            self._judge(thread.last)
            thread.last.end()

    def _judge(self, call: Call, mode: EagerCause | None = None) -> None:
        """Count a call if all of it, or a frame inside it, ran eagerly.

        Args:
            call: the call, which has returned.
            mode: see `_leave`.
        """
        callee = call.callee
        if callee is None:
            return
        cause = NO_OPS_EARLIER if self._reasons.skips(call) else None
        if call.served:
            # Only a frame inside it may have run eagerly.
            cause = cause or call.partial_cause
            cause = cause or (mode or explain_partial() if call.misses else None)
        elif cause is None or not call.cause_rank:
            # All of it ran eagerly. A cause about all code says more than `NO_OPS_EARLIER`.
            cause = call.cause or cause
            cause = cause or self._reasons.explain_uncompiled(callee, missed=call.misses > 0)
        if cause is not None:
            callee.uncompiled[cause] += 1

    # -- callables ---------------------------------------------------------------------------------

    def _find_or_add(self, call: Any, callback: Any) -> CompiledCallable:
        """Return the record of a callable, creating it at the first call.

        The callable is not kept alive, because it may hold tensors.

        Args:
            call: the object that torch calls.
            callback: Dynamo's callback, which leads to the backend.
        """
        key = id(call)
        if key not in self._by_id:
            callee = self._by_id[key] = CompiledCallable.of(call)
            callee.backend = torch_private.backend_name(callback)
            self._all.append(callee)
            try:
                self._references[key] = weakref.ref(call, lambda _: self._forget(key))
            except TypeError:
                self._references[key] = call  # no weak reference: keep it, so its id stays unique
            self._drop_ended_threads()
        return self._by_id[key]

    def _forget(self, key: int) -> None:
        self._by_id.pop(key, None)
        self._references.pop(key, None)

    def _drop_ended_threads(self) -> None:
        """Judge the last calls of threads that have ended, and forget the threads."""
        for thread in list(self._threads):
            if thread.alive() is None:
                self._judge_last(thread)
                self._threads.remove(thread)

    def table(self) -> CallableTable:
        """Return copies of all callables as they are now. Running calls are not judged."""
        for thread in self._threads:
            self._judge_last(thread)
        return {number: callee.since(None) for number, callee in enumerate(self._all)}

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        self._by_id.clear()
        self._references.clear()
        self._threads.clear()


_FRAME, _DISABLED, _FRAME_OF_TORCH = 1, 2, 3
"""Ranks of causes, see `Call.cause_rank`."""


def _add_cause(call: Call, cause: EagerCause, rank: int = 0) -> None:
    """Record why a frame, or all code, is left to the interpreter.

    A call keeps only the cause with the lowest rank. If ranks are equal, it keeps the first cause,
    which belongs to the outermost frame.
    """
    if call.cause is None or rank < call.cause_rank:
        call.cause, call.cause_rank = cause, rank


def _handled_exception() -> int:
    """Return the id of the exception that is handled, or that propagates through a `finally`."""
    return id(sys.exc_info()[1])


def _is_in_collection(frame: FrameType | None) -> bool:
    """Return True if a garbage collector callback runs in the frame.

    A collection can begin anywhere, even in a call of compiled code, and does not make that call
    eager. hypothesis installs such a callback, in a file that Dynamo skips.
    """
    # By identity: on Python 3.10, code that Dynamo made may have constants without a hash.
    codes = [code for each in gc.callbacks if (code := getattr(each, "__code__", None))]
    return bool(codes) and any(c.f_code is code for c in callers(frame) for code in codes)
