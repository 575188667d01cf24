"""Calls of compiled callables, and for each whether compiled code ran.

What Dynamo compiles is in its trace; what it silently does not compile is nowhere. So each call of
a compiled callable is noted as it begins, and judged when it is over: where Dynamo has served no
compiled code in it, neither from its cache nor by compiling, the call ran eagerly, for the reason
that Dynamo gave, if it gave one.

A warm call, served from Dynamo's cache, costs one Python frame of ours:

    what torch does                     what of ours it calls        what is noted
    calls the callable                  entered()                    callee.entries; current call
    finds compiled code                 guard hook (in C)            HIT in the call
    runs each graph, its backward       counter (in C)               the runs of the graph
    returns                             setattr, dict.pop (in C)     the outer call goes on

It is judged when the next one begins, or when a watch is read. Other calls are judged as they
return (`_leave`): the first one of a callable, one under a stance or a dispatch mode, one after a
call that may have run eagerly, one in which other calls or compilations begin, and calls of a
callable that has run no compiled graph yet. torch calls `_leave` itself: `compile_wrapper` has a
list `cleanups` that it goes through in its `finally`.

    calls the callable                  entered(), _enter()          callee.entries; current call
    finds no compiled code that fits    guard hook, missed()         call.misses
    record dynamo_start                 started()                    the call is interrupted
    leaves a frame to the interpreter   skipped()                    call.cause
    record compilation_metrics          finished()                   COMPILED in the call
                                        Executions.attach_new()      counters are put in
    runs each graph, its backward       counter (in C)               the runs of the graph
    returns or raises                   _leave()                     callee.uncompiled

A call inside another one is judged by itself, and says nothing about the outer one. A call that
raises is not judged: its caller gets no result. Tables grow with what is
called and compiled, never with a warm call.
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
from ...convert.source_lines import is_user_file, original_name
from .callables import (
    ACTIVE,
    COMPILED,
    EAGER_STANCES,
    HIT,
    Call,
    CallableTable,
    CallKind,
    CompiledCallable,
    EagerCause,
    Interrupted,
    Local,
    Reasons,
    ThreadCalls,
    code_key,
    disabled_at,
    disabled_inside,
    has_no_ops,
    switched_off,
    under_stance,
    why_partly,
)
from .executions import Executions
from .structured_trace import CompilationFinished, CompilationStarted

WRAPPER = "compile_wrapper"
"""Name of the frame of torch's that calls a compiled callable."""


class CompiledCallables:
    """The compiled callables that are called while the observers are installed.

    Args:
        executions: the counters of compiled graphs.
        failed: takes an error of ours in the middle of a call of the user's.

    Attributes:
        count_hit: to be called when Dynamo has found compiled code: notes it for the running
            thread, in C, and returns True.
    """

    def __init__(self, executions: Executions, failed: Callable[[Exception], None]) -> None:
        self._executions = executions
        self._failed = failed
        self._threads: list[ThreadCalls] = []
        self._local = Local(self._threads)
        self.count_hit: Callable[[], bool] = partial(methodcaller("hit", HIT, True), self._local)
        self._all: list[CompiledCallable] = []
        self._by_id: dict[int, CompiledCallable] = {}
        self._references: dict[int, Any] = {}
        self._reasons = Reasons()

    # -- what Dynamo does --------------------------------------------------------------------------

    @property
    def current(self) -> str:
        """Name of the compiled callable whose call this thread is in, "" for none."""
        callee = self._local.current.callee
        return "" if callee is None else callee.name

    def missed(self) -> bool:
        """Take note that none of the compilations of a frame fits."""
        self._local.current.misses += 1
        return True

    def started(self, event: CompilationStarted) -> None:
        """Take note that Dynamo begins to trace a frame."""
        local = self._local
        call = local.current
        self._explain_miss(call, torch_private.code_being_compiled())
        if not call.judged_at_end:
            self._judge_at_end(call, self._executions.forward_runs())
        local.calls.compiling.append(Interrupted(event.id, call))
        local.hit = Call(local).setdefault

    def broke(self, report: str) -> None:
        """Take note of a graph break that Dynamo reports while it traces."""
        compiling = self._local.calls.compiling
        callee = compiling[-1].call.callee if compiling else None
        if callee is not None and not callee.disabled:
            callee.disabled = disabled_at(report)

    def finished(self, event: CompilationFinished, *, has_graph: bool) -> None:
        """Take note that Dynamo compiled a frame, or failed to."""
        compiling = self._local.calls.compiling
        numbers = [n for n, each in enumerate(compiling) if each.compile_id == event.id]
        if numbers:
            compiling[numbers[-1]].call.go_on_with()
            del compiling[numbers[-1] :]
        call = self._local.current
        key = original_name(event.function), event.file, event.line
        if not event.failure:
            call[COMPILED] = True
            self._reasons.compiled(key, has_graph=has_graph)
            for callee in self._all:
                # Dynamo tries the newest compilation first, which may now serve other callables.
                callee.unproven = callee.unproven or callee.file == event.file
            if call.callee is not None and torch_private.is_inline_wrapper(*key):
                call.callee.without_ops = not has_graph
            return
        cause = self._reasons.failed(key, event.failure, event.reason)
        if cause.kind == "limit":
            self._explain_miss(call, torch_private.code_being_compiled())
            call.partial = call.partial or cause
        self._add_cause(cause, failed=True)

    def skipped(self, reason: str, frame: Any) -> None:
        """Take note that Dynamo leaves a frame to the interpreter.

        Args:
            reason: Dynamo's words.
            frame: the frame.
        """
        code = frame.f_code
        if _is_in_collection(frame):
            return
        self._explain_miss(self._local.current, code)
        key = code_key(code)
        if has_no_ops(reason):
            self._reasons.compiled((original_name(key[0]), *key[1:]), has_graph=False)
        elif disabled := torch_private.compile_is_disabled():
            self._add_cause(switched_off(disabled))
        else:
            kind: CallKind = "disabled" if "disabled" in reason else "skipped"
            self._add_cause(EagerCause(kind, reason, *key))

    def _explain_miss(self, call: Call, code: Any) -> None:
        """Dynamo looks at a frame. If it had compiled the code before, that was a cache miss."""
        if call.misses and code is not None and torch_private.is_compiled_code(code):
            call.misses -= 1

    def _add_cause(self, cause: EagerCause, *, failed: bool = False) -> None:
        """Keep why something is left to the interpreter: a frame, or all code.

        One cause is kept for a call: that of the lowest rank (see `Call.cause_rank`), and of
        several the first, which is of the outermost frame.
        """
        call = self._local.current
        rank = 0 if not cause.file else 1 if failed or is_user_file(cause.file) else 2
        if call.cause is None or rank < call.cause_rank:
            call.cause, call.cause_rank = cause, rank

    # -- calls -------------------------------------------------------------------------------------

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
                variables = caller.f_locals
                cleanups = variables.get("cleanups")
                callee = by_id.get(id(variables.get("fn")))
                outer = local.hit.__self__
                if not outer.judged_at_end:  # and so `last`, which this call needs
                    self._judge_at_end(outer, None)
                call = local.calls.last
                if (
                    callee is None
                    or callee.unproven
                    or len(call) != 1  # it has not returned, or Dynamo compiled in it
                    or HIT not in call
                    or call.misses
                    or call.cause
                    or call.partial
                    or cleanups is None
                    or modes()
                    or stance_of("_stance").stance != "default"
                ):
                    try:
                        self._enter(variables)
                    except Exception as error:
                        self._failed(error)
                else:
                    del call[HIT]
                    call[ACTIVE] = True
                    call.callee = callee
                    call.cleanups = cleanups
                    call.judged_at_end = False
                    local.hit = call.setdefault
                    callee.entries += 1
                    cleanups += outer.go_on_with, call.over
            return original()

        return entered

    def traced(self, call: Any, reason: str) -> None:
        """Count a call that torch makes without Dynamo, because something traces it."""
        callee = self._known(call, None)
        callee.entries += 1
        callee.uncompiled[EagerCause("skipped", reason)] += 1

    def _enter(self, variables: Any) -> None:
        """Begin a call that is judged as it returns, and note what keeps it from being compiled.

        Args:
            variables: those of torch's frame.
        """
        local, function = self._local, variables.get("fn")
        outer = local.current
        self._judge_last(local.calls)
        callee = self._known(function, variables.get("callback"))
        callee.entries += 1
        stance = torch_private.stance()
        call = Call(local, callee)
        call[ACTIVE] = True
        call.go_on_with()
        before = self._executions.forward_runs() if callee.unproven else None
        leave = partial(self._leave, call, function, _handled(), before, stance)
        variables["cleanups"].extend([outer.go_on_with, call.over, leave])
        if disabled := torch_private.compile_is_disabled():
            self._add_cause(switched_off(disabled))
        if stance in EAGER_STANCES:
            self._add_cause(under_stance(stance))
        for mode in torch_private.modes_that_stop_compilation():
            words = f"{mode} is active: Dynamo compiles nothing under a TorchDispatchMode"
            self._add_cause(EagerCause("skipped", words))

    def _judge_at_end(self, call: Call, runs_before: Sequence[int] | None) -> None:
        """Have a call that began as an ordinary one judged as it returns."""
        assert call.cleanups is not None
        leave = partial(self._leave, call, None, _handled(), runs_before, "default", call.served)
        call.cleanups.append(leave)
        call.cleanups = None
        call.judged_at_end = True
        thread = self._local.calls
        if thread.last is call:
            thread.last = Call(self._local)
            thread.last.end()

    def _leave(self, *args: Any) -> None:
        try:
            self._judge_left(*args)
        except Exception as error:  # ours, in the `finally` of the user's call
            self._failed(error)

    def _judge_left(
        self,
        call: Call,
        function: Any,
        handled: int,
        runs_before: Sequence[int] | None,
        stance: str,
        served_before: bool = False,
    ) -> None:
        """Judge a call that returns or raises.

        Args:
            call: the call.
            function: what was called, None for a call that began as an ordinary one.
            handled: `_handled()` as it began.
            runs_before: how often graphs had run as it began; None if the callable is known to run
                them, and nobody looks which.
            stance: the stance.
            served_before: whether it had got compiled code by then.
        """
        thread, callee = self._local.calls, call.callee
        self._judge_last(thread)
        # What is left of compilations whose end Dynamo did not report: an exception, or a backend
        # that calls compiled code, so that one compilation is inside another one.
        numbers = [n for n, each in enumerate(thread.compiling) if each.call is call]
        if numbers:
            del thread.compiling[numbers[0] :]
            code = None if callee is None else callee.code
            if code is not None and torch_private.is_compiled_code(code):
                call[COMPILED] = True
        if callee is None or _handled() != handled:  # it raises
            return
        graphs = {} if runs_before is None else self._executions.ran_since(runs_before)
        callee.served_by |= graphs
        ran = runs_before is None or served_before or bool(graphs)
        if call.served:
            callee.unproven = not ran
            if not ran and COMPILED not in call and not callee.disabled:
                # Dynamo has code without a graph in its cache for this call: its graph breaks ran.
                callee.disabled = disabled_inside(function)
            if not ran and callee.disabled:
                callee.uncompiled[EagerCause("disabled", callee.disabled)] += 1
                return
        self._judge(call, stance)

    def _judge_last(self, thread: ThreadCalls) -> None:
        """Judge the latest call that is not judged at its end, if it has returned."""
        if ACTIVE not in thread.last:
            self._judge(thread.last)
            thread.last.end()

    def _judge(self, call: Call, stance: str = "default") -> None:
        """Count a call if all of it, or a frame inside of it, ran eagerly."""
        callee = call.callee
        if callee is None:
            return
        if not call.served:
            cause = call.cause or self._reasons.why_unseen(callee, missed=call.misses > 0)
        elif call.misses and call.partial is None:
            cause = why_partly(stance)
        else:
            cause = call.partial
        if cause is not None:
            callee.uncompiled[cause] += 1

    # -- callables ---------------------------------------------------------------------------------

    def _known(self, call: Any, callback: Any) -> CompiledCallable:
        """The callable, known from now on without being kept alive: it may hold tensors.

        Args:
            call: what torch calls.
            callback: Dynamo's, which leads to the backend.
        """
        key = id(call)
        if key not in self._by_id:
            callee = self._by_id[key] = CompiledCallable.of(call)
            callee.backend = torch_private.backend_name(callback)
            self._all.append(callee)
            try:
                self._references[key] = weakref.ref(call, lambda _: self._forget(key))
            except TypeError:
                self._references[key] = call  # so that its id stays its own
            self._drop_ended_threads()
        return self._by_id[key]

    def _forget(self, key: int) -> None:
        self._by_id.pop(key, None)
        self._references.pop(key, None)

    def _drop_ended_threads(self) -> None:
        alive = sys._current_frames()
        # A new thread may get the ident of one that ended.
        latest = {thread.ident: thread for thread in self._threads}
        for thread in list(self._threads):
            if thread.ident not in alive or latest[thread.ident] is not thread:
                self._judge_last(thread)
                self._threads.remove(thread)

    def table(self) -> CallableTable:
        """Copies of all callables, as they are at this moment; calls that run are not judged."""
        for thread in self._threads:
            self._judge_last(thread)
        return {number: callee.since(None) for number, callee in enumerate(self._all)}

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        self._by_id.clear()
        self._references.clear()
        self._threads.clear()


def _handled() -> int:
    """The id of the exception that is being handled, or that is on its way out of a `finally`."""
    return id(sys.exc_info()[1])


def _is_in_collection(frame: FrameType | None) -> bool:
    """Return True for a frame that a callback of the garbage collector runs in.

    A collection can begin anywhere, also in a call of compiled code, which does not run eagerly
    because of it. hypothesis has such a callback, in a file that Dynamo skips.
    """
    codes = {getattr(callback, "__code__", None) for callback in gc.callbacks} - {None}
    while codes and frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return bool(codes) and frame is not None
