"""Callables passed to `torch.compile`, their calls, and the reasons why calls ran eagerly."""

from __future__ import annotations

import dis
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec

from ... import torch_private
from ...convert.source_lines import is_torch_file, is_user_file, original_name, relative
from ..guard_values import user_function
from .structured_trace import is_recompile_limit

CallKind = Literal["stance", "limit", "disabled", "skipped", "backend"]
"""Reason category of an eager call.

- `stance`: `torch.compiler.set_stance` requires it.
- `limit`: Dynamo had reached its recompile limit for the code.
- `disabled`: `torch.compiler.disable`, `torch._dynamo.config.disable` or `torch._dynamo.run`.
- `skipped`: Dynamo skipped the frame, or a mode, transform or trace is active, or
  `torch.compiler.precompile` made the callable, so Dynamo is not asked.
- `backend`: the backend raised, and `torch._dynamo.config.suppress_errors` is set."""


class EagerCause(NamedTuple):
    """Cause of eager code.

    Attributes:
        kind: see `CallKind`.
        reason: Dynamo's words, or ours.
        function, file, line: the frame that the reason is about; "" and 0 if it is about all code.
        earlier: True if the cause is from before the observers were installed, or if the reason is
            unknown. In another test order the call may then run compiled.
    """

    kind: CallKind
    reason: str
    function: str = ""
    file: str = ""
    line: int = 0
    earlier: bool = False


_GENERATED = "GraphModule.__new__.<locals>.GraphModuleImpl"
"""Qualified name of the class that torch.fx makes for each graph module."""

CodeKey = tuple[str, str, int]
"""Function, file and first line of a code object, as in torch's trace."""


@dataclass(slots=True)
class CompiledCallable:
    """A function or module that was passed to `torch.compile` and called.

    Attributes:
        name: qualified name.
        file, line: start of the user's function inside decorators; "" and 0 if it has none.
        code: code object that Python runs, `None` for a callable without one.
        entries: number of calls.
        raised: number of calls that raised.
        uncompiled: number of eager calls, by cause.
        backend: name of its backend, "" if it cannot be read.
        no_graph: why calls for which Dynamo has code ran no graph; `None` if no call did.
        owner: reference to the module if the callable is a module or its method, else `None`.
        served_by: compile ids of graphs that its calls ran, in order. Recorded for calls in which
            Dynamo compiled, and for the first call after the observers were installed or after code
            of the same file was compiled. Other calls are left out to keep them fast.
        unproven: True if no call has run a compiled graph yet, or none since code of its file was
            compiled, or if `no_graph` is set. Such calls are observed more closely, which costs
            some Python frames.
    """

    name: str
    file: str = ""
    line: int = 0
    code: CodeType | None = None
    entries: int = 0
    raised: int = 0
    uncompiled: Counter[EagerCause] = field(default_factory=Counter)
    backend: str = ""
    no_graph: EagerCause | None = None
    owner: weakref.ref[Any] | None = None
    served_by: dict[str, None] = field(default_factory=dict)
    unproven: bool = True

    @classmethod
    def of(cls, call: Any) -> CompiledCallable:
        """Describe a callable at its first call.

        Three objects differ: what torch calls, the module that it belongs to, and the user's
        function, where the code begins.
        """
        code = getattr(call, "__code__", None)
        # torch calls a module, or a callable object, through a function of its own.
        wrapped = torch_private.unwrap_inline(call)
        target = call if wrapped is None else wrapped
        owner = getattr(target, "__self__", wrapped)
        is_module = owner is not None and hasattr(owner, "named_modules")
        function = user_function(target)
        begin = getattr(function, "__code__", None)
        # `Module.__call__` is torch's: the user's function is `forward`.
        forward = getattr(type(owner), "forward", None)
        if is_module and (begin is None or is_torch_file(begin.co_filename)):
            function = user_function(forward)
        named = function if isinstance(target, partial) else target
        name = getattr(named, "__qualname__", type(named).__qualname__)
        if is_module:
            # torch.fx creates a class for each graph module, with this qualified name.
            name = type(owner).__qualname__.replace(_GENERATED, type(owner).__name__)
            # torch.compile of a module compiles `Module.__call__`, but users know their `forward`.
            code = getattr(forward, "__code__", code)
        elif wrapped is not None:
            code = getattr(wrapped, "__code__", None)
        reference = weakref.ref(owner) if is_module else None
        code = code if isinstance(code, CodeType) else None
        begin = getattr(function, "__code__", code)
        # A callable object of torch, such as a `PrecompiledModule`, begins nowhere in the user's
        # code.
        if begin is None or (code is None and is_torch_file(begin.co_filename)):
            return cls(name, owner=reference)
        return cls(name, begin.co_filename, begin.co_firstlineno, code, owner=reference)

    @property
    def computes_nothing(self) -> bool:
        """True if the code cannot run an op, whatever its arguments are: it only returns one."""
        steps = dis.get_instructions(self.code) if self.code else ()
        return all(step.opname.startswith(("RESUME", "LOAD_FAST", "RETURN_")) for step in steps)

    @property
    def key(self) -> CodeKey:
        """Key of the code; "" and 0 without code."""
        return code_key(self.code) if self.code else ("", "", 0)

    @property
    def names(self) -> list[str]:
        """Names that select this callable: for a module its class, its method, and both."""
        # The qualified name of a function ends with its name.
        if self.code is None or self.name.endswith(self.code.co_name):
            return [self.name]
        return [self.name, self.code.co_name, f"{self.name}.{self.code.co_name}"]

    def names_of(self, record: Any) -> list[str]:
        """Return `names` if `record` concerns this code or code inside it, else an empty list.

        Args:
            record: any object with `function`, `file` and `line`.
        """
        code = self.code
        if code is None or (record.file, record.function) != (code.co_filename, code.co_name):
            return []
        return self.names if code.co_firstlineno <= record.line <= _last_line(code) else []

    def since(self, before: CompiledCallable | None) -> CompiledCallable:
        """Return a copy that counts only the calls after an earlier copy; `None` counts all."""
        before = before or CompiledCallable(self.name)
        return replace(
            self,
            served_by=dict(self.served_by),
            entries=self.entries - before.entries,
            raised=self.raised - before.raised,
            uncompiled=self.uncompiled - before.uncompiled,
        )


_P = ParamSpec("_P")


def report_errors(
    method: Callable[Concatenate[Any, _P], None],
) -> Callable[Concatenate[Any, _P], None]:
    """Pass exceptions of an observing method to `self._failed`.

    Raised in the method, our error would end the user's call or compilation.
    """

    # No `functools.wraps`: `leave_alone` would unwrap it, and Dynamo would trace `reporting`.
    def reporting(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._failed(error)

    return reporting


CallableTable = dict[int, CompiledCallable]
"""Compiled callables, numbered by first call, because two callables may share a name."""


def code_key(code: CodeType) -> CodeKey:
    """Return the function, file and first line of a code object."""
    return code.co_name, code.co_filename, code.co_firstlineno


def _last_line(code: CodeType) -> int:
    """Return the last line of a function, with the functions inside it."""
    # A nested function may end after the last line of its parent's own bytecode.
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    lines = [line for *_, line in code.co_lines() if line is not None]
    return max([code.co_firstlineno, *lines, *map(_last_line, nested)])


ACTIVE, HIT, COMPILED = "active", "hit", "compiled"
"""Keys of a `Call`: it has not returned; Dynamo's cache had code for it; Dynamo compiled code."""


class Call(dict[str, bool]):
    """A call of a compiled callable, with Dynamo's actions as keys.

    It is a dict, so that Dynamo's guard hook can add `HIT` in C, with `setdefault`.

    Args:
        local: the thread's own state.
        callee: the callable; `None` for code outside any call, and for a compilation.

    Attributes:
        callee: as given.
        judged_at_end: True if it is judged when it returns.
        misses: number of frames that the interpreter ran, because Dynamo had no compiled code that
            fits, and did not compile them again.
        cause: reason why Dynamo left a frame to the interpreter; `None` if it left none.
        cause_rank: 0 for a cause that is about all code, 1 for a frame of the user's or a frame
            that failed to compile, 2 for a call of a function under `torch.compiler.disable`, 3 for
            a frame of torch's.
        partial_cause: cause of an eager frame inside a call that also ran compiled code.
        cleanups: torch's list of functions to run when the call ends; `None` once `_leave` is in
            the list.
        resume: makes this call the thread's current call again, in C.
        mark_returned: records that the call has returned, in C.
    """

    __slots__ = (
        "callee",
        "cause",
        "cause_rank",
        "cleanups",
        "judged_at_end",
        "mark_returned",
        "misses",
        "partial_cause",
        "resume",
    )

    def __init__(self, local: ThreadState, callee: CompiledCallable | None = None) -> None:
        super().__init__()
        self.callee = callee
        self.judged_at_end = True
        self.misses = 0
        self.cause: EagerCause | None = None
        self.cause_rank = 0
        self.partial_cause: EagerCause | None = None
        self.cleanups: list[Callable[[], object]] | None = None
        # See `ThreadState.hit`.
        self.resume = partial(setattr, local, "hit", self.setdefault)
        self.mark_returned = partial(self.pop, ACTIVE, None)

    def end(self) -> None:
        """Reset the call after it was judged, so that it can be reused."""
        self.clear()
        # As after a warm call: `entered` checks for exactly this.
        self[HIT] = True
        self.callee = self.cause = self.partial_cause = self.cleanups = None
        self.misses = self.cause_rank = 0

    @property
    def served(self) -> bool:
        """True if compiled code was served."""
        return HIT in self or COMPILED in self


class InterruptedCall(NamedTuple):
    """A call during which Dynamo is tracing a frame.

    Attributes:
        compile_id: the compilation.
        call: the call.
    """

    compile_id: Any
    call: Call


class ThreadCalls:
    """The calls of one thread.

    Attributes:
        alive: weak reference to a `Lifetime` that only the thread's own state holds, so the
            reference is dead once the thread has ended.
        last: the latest call that is not judged when it returns. The object is reused for the next
            call.
        compiling: calls interrupted by compilations, outermost first. There may be several, because
            a backend may call compiled code itself.
    """

    def __init__(self, local: ThreadState, alive: weakref.ref[Lifetime]) -> None:
        self.alive = alive
        self.compiling: list[InterruptedCall] = []
        self.last = Call(local)
        self.last.end()


class Lifetime:
    """A value that Python drops when its thread ends."""


class ThreadState(threading.local):
    """State of the running thread.

    Attributes:
        calls: its calls.
        lifetime: the value to which `calls.alive` refers.
        hit: `setdefault` of the current call, called in C. Its `__self__` is the call. Outside any
            call it belongs to a `Call` that is never judged.
    """

    def __init__(self, threads: list[ThreadCalls]) -> None:
        # `sys._current_frames()` returns the running threads too, but hangs on Python 3.11.0 to
        # 3.11.8 if the garbage collector starts inside it and frees a `threading.local`.
        self.lifetime = Lifetime()
        self.calls = ThreadCalls(self, weakref.ref(self.lifetime))
        self.hit: Any = Call(self).setdefault
        threads.append(self.calls)

    @property
    def current(self) -> Call:
        """Current call of this thread."""
        call: Call = self.hit.__self__
        return call


RUN_ONLY = EagerCause("disabled", "torch._dynamo.run compiles nothing")
"""Cause for a call of the result of `torch._dynamo.run(f)`."""
EAGER_STANCES = frozenset(
    {"force_eager", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile"}
)
"""Stances under which a call may run eagerly; `fail_on_recompile` raises instead."""
_BACKEND_FAILED = "BackendCompilerFailed"
_NO_TENSOR_OPS = ("No ops traced for the FX graph", "no tensor-related objects found in frame")
"""Dynamo's reasons for skipping a frame that has nothing to compile."""
_DISABLED = "torch.compiler.disable"
PRECOMPILED = "torch.compiler.precompile compiled it, so its graph is unknown"
"""Reason for a call of a precompiled module, which runs compiled code that Dynamo does not know."""
AOT_COMPILED = "aot_compile compiled it, and a watch does not record its graph"
"""Reason for a call of the result of `torch.compile(f).aot_compile(...)`."""
_NO_GRAPH = "Dynamo compiled no graph"
WITHOUT_GRAPH = EagerCause(
    "skipped",
    f"{_NO_GRAPH} for it, for example because of a graph break or {_DISABLED} at its start",
    earlier=True,
)
"""Cause for a call for which Dynamo has code without a graph."""
_SKIPPED = (
    "Dynamo skipped it, because its code was marked as skipped earlier in this process. Possible "
    "reasons: an active dispatch mode, the recompile limit, {}. To clear the mark, call "
    "torch._dynamo.reset()"
)
# torch calls only its own modules and functions through the wrapper, not the user's.
_MARKED_WRAPPER = _SKIPPED.format(
    "an error, or a layer with no tensor operations (torch calls all torch.nn modules through one "
    "wrapper function, so one such layer marks it for all of them)"
)
_MARKED = _SKIPPED.format("or an error")


NO_OPS_EARLIER = EagerCause(
    "skipped",
    "Dynamo found no tensor operations in an earlier call, and since then skips this code, also in "
    "calls that compute. Compile only code that computes in each call, and call "
    "torch._dynamo.reset()",
    earlier=True,
)
"""Cause for a call of code that Dynamo skips; see `CompileAttempts.skips`."""


class CompileAttempts:
    """Results of Dynamo's latest attempt to compile each function, in this process.

    Attributes:
        without_graph: code that Dynamo skips, because it found no tensor operation in it, with the
            call in which it looked; `None` if it looked before the observers were installed.
        failures: causes of the eager runs of code that Dynamo failed to compile.
    """

    def __init__(self) -> None:
        self.without_graph: dict[CodeKey, Call | None] = {}
        self.failures: dict[CodeKey, EagerCause] = {}
        for last in torch_private.last_compilations():
            if not last.failure:
                self.compiled(last[:3], has_graph=last.ops is not None)
            elif not is_recompile_limit(last.failure, last.reason):
                self.failures[last[:3]] = _cause_of_earlier(last)

    def compiled(self, key: CodeKey, *, has_graph: bool, call: Call | None = None) -> None:
        """Record that Dynamo compiled a function. A function without tensor ops has no graph.

        Args:
            key: the function.
            has_graph: False if Dynamo found no tensor op in it.
            call: the call in which Dynamo compiled it; `None` if that was before the observers.
        """
        self.without_graph.pop(key, None)
        if not has_graph:
            self.without_graph[key] = call
        # A function that failed for one input may compile for the next.
        self.failures.pop(key, None)

    def failed(self, key: CodeKey, failure: str, reason: str) -> EagerCause:
        """Record that Dynamo failed to compile a function, and return the cause of its eager runs.

        Args:
            key: the function.
            failure, reason: type and text of the exception.
        """
        kind: CallKind = "backend" if failure == _BACKEND_FAILED else "skipped"
        if is_recompile_limit(failure, reason):
            kind = "limit"
        name = original_name(key[0])
        self.failures[key] = EagerCause(kind, first_line(reason) or failure, name, *key[1:])
        return self.failures[key]

    def explain_failure(self, callee: CompiledCallable) -> EagerCause | None:
        """Return why Dynamo gave up a part of a callable's code; `None` if it gave up none."""
        return next(filter(callee.names_of, reversed(self.failures.values())), None)

    def skips(self, call: Call) -> bool:
        """Return True if Dynamo skips a call because an earlier one had no tensor operations."""
        callee = call.callee
        # `call` itself stands for "not found" too: a call without a graph is right to have none if
        # Dynamo looked for ops in this very call.
        found_in = call if callee is None else self.without_graph.get(callee.key, call)
        if callee is None or callee.code is None or found_in is call:
            return False
        if call.served and torch_private.is_compiled_code(callee.code):
            return False  # it has compiled code without a graph
        return not (callee.key in self.failures or callee.computes_nothing)

    def explain_uncompiled(self, callee: CompiledCallable, *, missed: bool) -> EagerCause | None:
        """Return why Dynamo left a call uncompiled; `None` if there is nothing to compile in it.

        Args:
            callee: the callable.
            missed: True if Dynamo has compiled code for it, but none that fits.
        """
        key = callee.key
        if callee.code is None:
            return EagerCause("skipped", _MARKED_WRAPPER, earlier=True)
        # From certain to inferred: only without a result, the mark on the code is read.
        if key in self.failures:
            return self.failures[key]
        if key in self.without_graph or callee.computes_nothing:
            return None
        if missed or torch_private.is_at_recompile_limit(callee.code):
            words = (
                "the recompile limit was reached before, so Dynamo no longer compiles this code. "
                "To clear the limit, call torch._dynamo.reset()"
            )
            return EagerCause("limit", words, *key, earlier=True)
        words = _MARKED_WRAPPER if is_torch_file(callee.code.co_filename) else _MARKED
        return EagerCause("skipped", words, earlier=True)


def _cause_of_earlier(last: torch_private.LastCompilation) -> EagerCause:
    """Return the cause for code that Dynamo failed to compile before the observers."""
    kind: CallKind = "backend" if last.failure == _BACKEND_FAILED else "skipped"
    words = f"Dynamo abandoned it earlier in this process: {first_line(last.reason)}"
    function = original_name(last.function)
    return EagerCause(kind, words, function, last.file, last.line, earlier=True)


def explain_partial() -> EagerCause:
    """Return why a frame inside a call ran eagerly although Dynamo had compiled its code before."""
    # Dynamo does not report which frame it left to the interpreter. So name all of the user's code
    # that is at the recompile limit.
    codes = torch_private.code_at_recompile_limit()
    names = [
        f"{original_name(code.co_name)} ({relative(code.co_filename)}:{code.co_firstlineno})"
        for code in codes
        if is_user_file(code.co_filename)
    ]
    words = "a part of it ran eagerly, because the recompile limit was reached before"
    return EagerCause("limit", f"{words}: {', '.join(names)}" if names else words, earlier=True)


def cause_of_setting(setting: str) -> EagerCause:
    """Return the cause for a setting that disables compilation of all code."""
    return EagerCause("disabled", f"torch.compile is disabled by {setting}")


def cause_of_stance(stance: str) -> EagerCause:
    """Return the cause for a stance under which code may run eagerly."""
    return EagerCause("stance", f"torch.compiler.set_stance({stance!r}) is active")


def has_no_ops(reason: str) -> bool:
    """Return True if Dynamo skipped a frame because there is nothing to compile."""
    return any(text in reason for text in _NO_TENSOR_OPS)


def read_disabled(report: str) -> str:
    """Return the reason of a graph break at a function under `torch.compiler.disable`; else "".

    Args:
        report: Dynamo's report of the graph break.
    """
    lines = (line.strip() for line in report.splitlines() if _DISABLED in line)
    line = next(lines, "")
    return line and f"{_NO_GRAPH}: {line}"


def first_line(text: str) -> str:
    """Return the first line that is not blank, with a backend's exception; "" if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # `BackendCompilerFailed` has the type and message of the backend's exception in the second.
    if lines[1:] and lines[0].endswith(" raised:"):
        return f"{lines[0][:-1]} {lines[1]}".removesuffix(":")
    return lines[0] if lines else ""
