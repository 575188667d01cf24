"""Calls of compiled callables, and for each whether compiled code ran.

What Dynamo compiles is in its trace; what it silently does not compile is nowhere. So each call of
a compiled callable is noted as it begins, and judged when it is over: where Dynamo has served no
compiled code in it, neither from its cache nor by compiling, the call ran eagerly, for the reason
that Dynamo gave, if it gave one.

A warm call, served from Dynamo's cache, costs one Python frame of ours:

    what torch does                     what of ours it calls        what is counted
    calls the callable                  entered()                    callee.entries
    finds compiled code                 guard hook (in C)            thread.served
    runs each graph, its backward       counter (in C)               the runs of the graph
    returns                             list.pop (in C)              the call is not active any more

It is judged when the next call begins, or when a watch is read. Every other call is judged as it
returns (`_leave`): the first one of a callable, one inside another call, one under a stance or a
dispatch mode, one after a call that may have run eagerly, one in which Dynamo compiles, and calls
of a callable that has run no compiled graph yet. torch calls `_leave` itself: `compile_wrapper` has
a list `cleanups` that it goes through in its `finally`.

    calls the callable                  entered(), _enter()          callee.entries
    finds no compiled code that fits    guard hook, _missed()        thread.misses
    record dynamo_start                 started()                    the call is set aside
    leaves a frame to the interpreter   skipped()                    the cause is kept
    record compilation_metrics          finished()                   thread.served
                                        Executions.attach_new()      counters are put in
    runs each graph, its backward       counter (in C)               the runs of the graph
    returns or raises                   _leave()                     callee.uncompiled

A call inside another one is judged by itself, and says nothing about the outer one. A call that
raised before compiled code ran is no eager call: its caller got no result. Tables grow with what is
called and compiled, never with a warm call.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

from ... import torch_private
from ...convert.source_lines import is_user_file, original_name, relative
from .call_state import COMPILED, HIT, ThreadCalls
from .callables import CallableTable, CallKind, CodeKey, CompiledCallable, EagerCause, code_key
from .events import CompilationFinished, CompilationStarted, is_recompile_limit

WRAPPER = "compile_wrapper"
"""Name of the frame of torch's that calls a compiled callable."""
_BACKEND_FAILED = "BackendCompilerFailed"
_NO_TENSOR_OPS = ("No ops traced for the FX graph", "no tensor-related objects found in frame")
"""Dynamo's reasons for leaving a frame alone in which there is nothing to compile."""
_DISABLED = "torch.compiler.disable"
_EAGER_STANCES = frozenset(
    {"force_eager", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile"}
)
_NEVER_LOOKED_AT = (
    "Dynamo did not even look at it. Its code was marked as skipped earlier in this process, by a "
    "dispatch mode that was active, the recompile limit, an error, or (modules of torch.nn share "
    "the code) a layer without tensor operation; torch._dynamo.reset() clears that"
)


class _Local(threading.local):
    """The calls of the running thread.

    Attributes:
        calls: the calls.
        hit: `calls.served.setdefault`, to be called by name in C.
    """

    def __init__(self, threads: list[ThreadCalls]) -> None:
        self.calls = ThreadCalls()
        self.hit = self.calls.served.setdefault
        threads.append(self.calls)


class CompiledCallables:
    """The compiled callables that are called while the observers are installed.

    Args:
        graph_runs: returns how often compiled graphs ran.

    Attributes:
        count_hit: to be called when Dynamo has found compiled code: notes it for the running
            thread, in C, and returns True.
    """

    def __init__(self, graph_runs: Callable[[], int]) -> None:
        self._graph_runs = graph_runs
        self._threads: list[ThreadCalls] = []
        self._local = _Local(self._threads)
        self.count_hit: Callable[[], bool] = partial(methodcaller("hit", HIT, True), self._local)
        self._all: list[CompiledCallable] = []
        self._by_id: dict[int, CompiledCallable] = {}
        self._references: dict[int, Any] = {}
        self._without_graph: set[CodeKey] = set()
        self._failures: dict[CodeKey | None, EagerCause] = {}

    # -- what Dynamo does --------------------------------------------------------------------------

    @property
    def current(self) -> str:
        """Name of the compiled callable that this thread called last, "" for none."""
        callee = self._local.calls.callee
        return "" if callee is None else callee.name

    def missed(self) -> bool:
        """Take note that none of the compilations of a frame fits."""
        self._local.calls.misses += 1
        return True

    def started(self, event: CompilationStarted) -> None:
        """Take note that Dynamo begins to trace a frame."""
        thread = self._local.calls
        self._explain_miss(thread, torch_private.code_being_compiled())
        if not thread.active:  # a captured backward is compiled outside of every call
            self._judge(thread)
        if thread.cleanups is not None:  # of a call that began as an ordinary one
            before = self._graph_runs() if not thread.served else None
            cleanups, thread.cleanups = thread.cleanups, None
            cleanups.append(partial(self._leave, thread, None, None, _handled(), before, "default"))
        thread.interrupt(event.id)
        thread.begin(None)

    def broke(self, report: str) -> None:
        """Take note of a graph break that Dynamo reports while it traces."""
        callee = self._local.calls.traced
        if callee is not None and _DISABLED in report and not callee.disabled:
            callee.disabled = f"Dynamo compiled no graph of it: {_kind_of(report)}"

    def finished(self, event: CompilationFinished, *, has_graph: bool) -> None:
        """Take note that Dynamo compiled a frame, or failed to."""
        thread = self._local.calls
        if any(each.key == event.id for each in thread.set_aside):
            while thread.resume() != event.id:
                pass
        key = original_name(event.function), event.file, event.line
        if not event.failure:
            thread.served[COMPILED] = True
            (self._without_graph.discard if has_graph else self._without_graph.add)(key)
            if thread.callee is not None and torch_private.is_inline_wrapper(*key):
                thread.callee.without_ops = not has_graph
            self._failures.pop(key, None)
            return
        kind: CallKind = "backend" if event.failure == _BACKEND_FAILED else "skipped"
        if is_recompile_limit(event.failure, event.reason):
            kind = "limit"
            self._explain_miss(thread, torch_private.code_being_compiled())
        cause = EagerCause(kind, first_line(event.reason) or event.failure, *key)
        self._failures[key] = cause
        if kind == "limit":
            thread.partial = thread.partial or cause
        self._add_cause(cause, failed=True)

    def skipped(self, reason: str, frame: Any) -> None:
        """Take note that Dynamo leaves a frame to the interpreter.

        Args:
            reason: Dynamo's words.
            frame: the frame.
        """
        code = frame.f_code
        self._explain_miss(self._local.calls, code)
        key = code_key(code)
        if any(text in reason for text in _NO_TENSOR_OPS):
            self._without_graph.add((original_name(key[0]), *key[1:]))
            return
        if disabled := torch_private.compile_is_disabled():
            self._add_cause(_switched_off(disabled))
            return
        self._add_cause(EagerCause("disabled" if "disabled" in reason else "skipped", reason, *key))

    def _explain_miss(self, thread: ThreadCalls, code: Any) -> None:
        """Dynamo looks at a frame. If it had compiled the code before, that was a cache miss."""
        if thread.misses and code is not None and torch_private.is_compiled_code(code):
            thread.explain_miss()

    def _add_cause(self, cause: EagerCause, *, failed: bool = False) -> None:
        """Keep why something is left to the interpreter: a frame, or all code.

        One cause is kept for a call: that of the lowest rank (see `ThreadCalls.cause_rank`), and of
        several the first, which is of the outermost frame.
        """
        thread = self._local.calls
        rank = 0 if not cause.file else 1 if failed or is_user_file(cause.file) else 2
        if thread.cause is None or rank < thread.cause_rank:
            thread.cause, thread.cause_rank = cause, rank

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
                thread, variables = local.calls, caller.f_locals
                call, cleanups = variables.get("fn"), variables.get("cleanups")
                callee = by_id.get(id(call))
                if (
                    callee is None
                    or callee.unproven
                    or thread.active
                    or thread.misses
                    or thread.cause
                    or not thread.served
                    or cleanups is None
                    or modes()
                    or stance_of("_stance").stance != "default"
                ):
                    self._enter(thread, call, variables)
                else:
                    thread.served.clear()
                    thread.callee = callee
                    callee.entries += 1
                    thread.active.append(callee)
                    thread.cleanups = cleanups
                    cleanups.append(thread.active.pop)
            return original()

        return entered

    def traced(self, call: Any, reason: str) -> None:
        """Count a call that torch makes without Dynamo, because something traces it."""
        callee = self._known(call, None)
        callee.entries += 1
        callee.uncompiled[EagerCause("skipped", reason)] += 1

    def _enter(self, thread: ThreadCalls, call: Any, variables: Any) -> None:
        """Begin a call that is judged as it returns, and note what keeps it from being compiled.

        Args:
            thread: the running thread.
            call: the callable.
            variables: those of torch's frame.
        """
        if not thread.active:
            self._judge(thread)
        callee = self._known(call, variables.get("callback"))
        callee.entries += 1
        key, cleanups, stance = object(), variables.get("cleanups"), torch_private.stance()
        if cleanups is None:  # a torch whose wrapper has none: judged when the next call begins
            thread.begin(callee)
        else:
            thread.interrupt(key)
            thread.begin(callee)
            thread.active.append(callee)
            before = self._graph_runs() if callee.unproven else None
            cleanups.append(partial(self._leave, thread, key, call, _handled(), before, stance))
        if disabled := torch_private.compile_is_disabled():
            self._add_cause(_switched_off(disabled))
        if stance in _EAGER_STANCES:
            self._add_cause(_under_stance(stance))
        for mode in torch_private.modes_that_stop_compilation():
            words = f"{mode} is active: Dynamo compiles nothing under a TorchDispatchMode"
            self._add_cause(EagerCause("skipped", words))

    def _leave(
        self,
        thread: ThreadCalls,
        key: object | None,
        call: Any,
        handled: int,
        runs_before: int | None,
        stance: str,
    ) -> None:
        """Judge a call that returns or raises.

        Args:
            thread: its thread.
            key: what the outer call was set aside under, None if there is none.
            call: the callable, None for one that began as an ordinary call.
            handled: `_handled()` as it began.
            runs_before: how often graphs had run as it began, None if one ran since.
            stance: the stance.
        """
        outer = [number for number, each in enumerate(thread.set_aside) if each.key is key]
        if key is not None and not outer:
            return  # the observers were removed meanwhile
        # What is left of compilations whose end Dynamo did not report: an exception, or a backend
        # that calls compiled code, so that one compilation is inside another one.
        unfinished = len(thread.set_aside) > (outer[-1] + 1 if outer else 0)
        while len(thread.set_aside) > (outer[-1] + 1 if outer else 0):
            thread.resume()
        callee = thread.callee
        code = None if callee is None else callee.code
        if unfinished and code is not None and torch_private.is_compiled_code(code):
            thread.served[COMPILED] = True
        ran = runs_before is None or self._graph_runs() > runs_before
        if callee is not None and thread.served:
            callee.unproven = not ran
            if not ran and COMPILED not in thread.served and not callee.disabled:
                # Dynamo has code without a graph in its cache for this call: its graph breaks ran.
                callee.disabled = _calls_disabled(call)
            if not ran and callee.disabled:
                callee.uncompiled[EagerCause("disabled", callee.disabled)] += 1
                thread.end()
        if not thread.served and _handled() != handled:
            thread.end()
        self._judge(thread, stance)
        if key is not None:
            thread.active.pop()
            thread.resume()

    def _judge(self, thread: ThreadCalls, stance: str = "default") -> None:
        """Count the latest call of a thread if all of it, or a frame inside of it, ran eagerly."""
        callee = thread.callee
        if callee is not None:
            if not thread.served:
                cause = thread.cause or self._why_unseen(callee, missed=thread.misses > 0)
            elif thread.misses and thread.partial is None:
                cause = self._why_partly(stance)
            else:
                cause = thread.partial
            if cause is not None:
                callee.uncompiled[cause] += 1
        thread.end()

    def _why_unseen(self, callee: CompiledCallable, *, missed: bool) -> EagerCause | None:
        """Why Dynamo did not look at the code of a call; None if there is nothing to compile.

        Args:
            callee: the callable.
            missed: whether Dynamo has compiled code of it, of which none fitted.
        """
        if callee.code is None:
            return EagerCause("skipped", _NEVER_LOOKED_AT, earlier=True)
        key = code_key(callee.code)
        if key in self._failures:
            return self._failures[key]
        if key in self._without_graph or callee.without_ops:
            return None
        if missed or torch_private.is_at_recompile_limit(callee.code):
            words = (
                "the recompile limit had been reached before: Dynamo compiles this code no more. "
                "torch._dynamo.reset() clears it"
            )
            return EagerCause("limit", words, *key, earlier=True)
        last = torch_private.last_compilation(*key)
        if last is not None and last.failure:
            kind: CallKind = "backend" if last.failure == _BACKEND_FAILED else "skipped"
            words = f"Dynamo gave it up earlier in this process: {first_line(last.reason)}"
            return EagerCause(kind, words, *key, earlier=True)
        if last is not None and last.ops is None:
            return None
        return EagerCause("skipped", _NEVER_LOOKED_AT, earlier=True)

    def _why_partly(self, stance: str) -> EagerCause:
        """Why a frame inside a call ran eagerly, though Dynamo had compiled its code before."""
        if stance in _EAGER_STANCES:
            return _under_stance(stance)
        codes = torch_private.code_at_recompile_limit()
        users = [code for code in codes if is_user_file(code.co_filename)]
        names = [
            f"{original_name(code.co_name)} ({relative(code.co_filename)}:{code.co_firstlineno})"
            for code in users
        ]
        words = "a part of it ran eagerly, since the recompile limit had been reached before"
        return EagerCause("limit", f"{words}: {', '.join(names)}" if names else words, earlier=True)

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
                self._judge(thread)
                self._threads.remove(thread)

    def table(self) -> CallableTable:
        """Copies of all callables, as they are at this moment; calls that run are not judged."""
        for thread in self._threads:
            if not thread.active:
                self._judge(thread)
        return {number: callee.since(None) for number, callee in enumerate(self._all)}

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        self._by_id.clear()
        self._references.clear()
        for thread in self._threads:
            thread.set_aside.clear()
        self._threads.clear()


def first_line(text: str) -> str:
    """The first line that is not blank, "" for none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _handled() -> int:
    """The id of the exception that is being handled, or that is on its way out of a `finally`."""
    return id(sys.exc_info()[1])


def _switched_off(setting: str) -> EagerCause:
    return EagerCause("disabled", f"torch.compile is switched off by {setting}")


def _under_stance(stance: str) -> EagerCause:
    return EagerCause("stance", f"torch.compiler.set_stance({stance!r}) is in force")


def _kind_of(report: str) -> str:
    """The line of a report of Dynamo's that is about `torch.compiler.disable`."""
    return next(line.strip() for line in report.splitlines() if _DISABLED in line)


def _calls_disabled(call: Any) -> str:
    name = "" if call is None else torch_private.disabled_in(call)
    return name and f"Dynamo compiled no graph of it: {name} is under torch.compiler.disable"
