"""Callbacks while Dynamo and compiled autograd compile and run code.

    on_entry                        a compiled callable is called
    on_traced_call                  a compiled callable is called while torch.export traces
    guard_hook                      Dynamo looked for compiled code of a frame
    on_skip                         Dynamo leaves a whole frame to the interpreter
    on_break_stack                  Dynamo is about to report a graph break
    on_compiled_autograd_capture    compiled autograd has captured a backward
    compiled_autograd_reasons       the reason for that capture, in the structured trace

Each is a context manager. Nearly all of them replace a function of torch by ours, which calls the
original. `leave_alone` keeps Dynamo from tracing our functions.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from .private_names import Replaced, get, has, replaced


def on_entry(observer: Callable[[Callable[[], Any]], Callable[[], Any]]) -> Replaced:
    """Observe each call of a compiled callable, before any of the callable runs.

    At each such call, torch calls `_is_skip_guard_eval_unsafe_stance` without arguments. Replaces
    that function with `observer(original)`. The calling frame is `compile_wrapper`; its local `fn`
    is the compiled callable.
    """
    return replaced("skip_guard_eval_unsafe", observer(get("skip_guard_eval_unsafe")))


def on_traced_call(traced: Callable[[Any], None]) -> Replaced:
    """Call `traced(function)` when `torch.export` traces a call of a compiled callable.

    The frame `compile_wrapper` then calls its function directly, without Dynamo, unless
    `_in_hop_compile` returns True.

    Raises:
        TorchGraphError: if this torch has no `_in_hop_compile`.
    """
    original, context = get("in_hop_compile"), get("tracing_context")

    def observed() -> Any:
        within = original()
        caller = sys._getframe(1)
        if not within and caller.f_code.co_name == "compile_wrapper" and context() is not None:
            traced(local_of(caller, "fn"))
        return within

    return replaced("in_hop_compile", observed)


def current_stance() -> Callable[[str], Any]:
    """Return a function that returns the current stance if called with "_stance".

    The function is `__getitem__` of the globals of `eval_frame`. It is written in C, so it adds no
    Python frame to a warm call.
    """
    get("stance")
    return vars(sys.modules["torch._dynamo.eval_frame"]).__getitem__


_OURS = __package__.partition(".")[0]
"""Name of our top-level package."""

_left_alone: set[str] = set()
"""Modules whose functions Dynamo already skips."""


def leave_alone(*packages: str) -> None:
    """Keep Dynamo from tracing the functions of this package and of other packages of ours.

    With compiled autograd the observers run inside compiled code. Call this function again after
    importing more modules.

    Args:
        packages: full names, such as `pytest_torchgraph.watching`. Subpackages are included;
            packages that only share the prefix, such as `pytest_torchgraph.watching_more`, are not.
    """
    for name in [module_name for module_name in sys.modules if module_name.startswith(_OURS)]:
        if name not in _left_alone and _is_in(name, __package__, *packages):
            _left_alone.add(name)
            for value in vars(sys.modules[name]).values():
                _skip_code_of(value)


def leave_function_alone(function: Callable[..., Any]) -> None:
    """Keep Dynamo from tracing one of our functions and its callees; see `leave_alone`."""
    _skip_code_once(function.__code__)


def on_optimizer_step(
    stepped: Callable[[Any], object],
) -> contextlib.AbstractContextManager[None]:
    """Call `stepped(optimizer)` after each step of an optimizer, unless it is compiled.

    A global hook does not serve: compiled steps have a guard on the number of hooks.
    """
    original = get("after_optimizer_step")

    def after(self: Any) -> None:
        if not torch.compiler.is_compiling():
            stepped(self)
        original(self)

    if "torch._dynamo" in sys.modules:  # otherwise Dynamo would compile it as a frame
        leave_function_alone(after)
    return replaced("after_optimizer_step", after)


# The cache is keyed by code, not by function: it would keep the wrapper of each capture alive.
@functools.cache
def _skip_code_once(code: CodeType) -> None:
    """Do `_skip_code`, unless it was done before."""
    _skip_code(code)


def _is_in(module: str, *packages: str) -> bool:
    """Return True if a module is one of these packages, or inside one."""
    return f"{module}.".startswith(tuple(f"{package}." for package in packages))


def _skip_code_of(value: Any) -> None:
    """Keep Dynamo from tracing one of our functions, or the methods and properties of a class."""
    if not isinstance(value, FunctionType | type) or not _is_in(value.__module__, _OURS):
        return
    for member in vars(value).values() if isinstance(value, type) else (value,):
        # A property, or a class or static method, holds the function.
        function = getattr(member, "fget", getattr(member, "__func__", member))
        if isinstance(function, FunctionType):
            _skip_code(inspect.unwrap(function).__code__)


def _skip_code(code: CodeType) -> None:
    """Keep Dynamo from tracing a function, its nested functions, and the functions that they call.

    The functions in `_CALLING_TORCH` call torch's originals, and Dynamo does not skip these.
    """
    action = get("frame_action")
    calls = action.DEFAULT if code.co_name in _CALLING_TORCH else action.SKIP
    get("skip_code")(code, get("frame_strategy")(action.SKIP, calls))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _skip_code(constant)


_CALLING_TORCH = frozenset({"entered", "observed", "armed_again"})
"""Names of our functions that replace one of torch's functions and call it."""


_NO_REASON = "this release of torch does not say why"
GAVE_UP = ("an error was suppressed during compilation", _NO_REASON)
"""Reasons for a frame that Dynamo could not compile."""


def on_skip(skipped: Callable[[str, Any], None]) -> Replaced:
    """Call `skipped(reason, frame)` for each frame that Dynamo leaves to the interpreter.

    Since torch 2.13 the reason is torch's own text. For older releases, it is "frame is in the
    Dynamo skipfiles list", or a text saying that this release gives no reason.

    Raises:
        TorchGraphError: if this torch has none of the functions that report skips.
    """
    if not has("skip_reason"):
        return _on_skip_without_reasons(skipped)
    original = get("skip_reason")

    def observed(reason: str, frame: Any) -> Any:
        skipped(reason, frame)
        return original(reason, frame)

    return replaced("skip_reason", observed)


def _on_skip_without_reasons(skipped: Callable[[str, Any], None]) -> Replaced:
    """Implement `on_skip` for a torch without reasons, reporting only inferable reasons."""
    original = get("convert_frame")
    in_skipfiles = get("in_skipfiles")

    def observed(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, frame, *args, **kwargs)
        if getattr(result, "guarded_code", None) is None:  # not compiled
            if in_skipfiles(frame.f_code):
                skipped("frame is in the Dynamo skipfiles list", frame)
            else:
                skipped(_NO_REASON, frame)
        return result

    return replaced("convert_frame", observed)


def on_break_stack(reported: Callable[[Any, Callable[[], str]], None]) -> Replaced:
    """Call `reported(frames, find_module)` when Dynamo is about to report a graph break.

    `frames` is the whole stack. In the report it is shortened by `collapse_resume_frames`, which
    mistakes a function called by a function of the same name for a resume function. If a `forward`
    calls a `forward`, the report therefore shows only the inner one.

    `find_module()` returns Dynamo's source of the submodule whose code broke, such as
    `L['self'].layers.0`; "" for the compiled module itself. It is a function, so that `reported`
    can catch our errors: an exception raised here would end the user's compilation.

    Raises:
        TorchGraphError: if this torch has no `collapse_resume_frames`.
    """
    original = get("collapse_resume_frames")

    def observed(frames: Any) -> Any:
        # torch reports a break while it handles its own exception.
        reported(frames, functools.partial(_module_of, sys.exc_info()[1]))
        return original(frames)

    return replaced("collapse_resume_frames", observed)


def local_of(frame: FrameType, name: str) -> Any:
    """Return a local variable of one of torch's frames, `None` if it has none of that name."""
    variables = frame.f_locals
    value = variables.get(name)
    # Before Python 3.13 the frame keeps the dict that `f_locals` creates, and the dict keeps the
    # variables, for example an exception with its traceback, alive until the garbage collector
    # runs. So empty the dict again.
    if type(variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()
    return value


def _module_of(error: BaseException | None) -> str:
    """Return the source of the submodule that Dynamo was tracing at the error, "" if there is none.

    It is in the `nn_module_stack` of the innermost translator in the traceback.
    """
    module = ""
    while error is not None and not module:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            of_dynamo = str(frame.f_globals.get("__name__", "")).startswith("torch._dynamo.")
            translator = local_of(frame, "self") if of_dynamo else None
            stack = _own_attribute(translator, "nn_module_stack")
            if isinstance(stack, dict) and stack:
                module = str(list(stack.values())[-1][0])
        error = error.__context__  # set if Dynamo could not resume after the break
    return module


def _own_attribute(value: Any, name: str) -> Any:
    """Return an attribute without calling `__getattr__`, `None` if there is none.

    Calling `__getattr__` of a lazy variable of Dynamo realizes it, which changes the compiled code.
    """
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def on_compiled_autograd_capture(captured: Callable[[int, Any], Any], ending: set[int]) -> Replaced:
    """Replace each function that compiled autograd compiles by `captured(id, function)`.

    The id is the number of the capture: 0 for `!0`. While a thread ends a capture, `ending` has its
    `threading.get_ident()`: what Dynamo compiles then is torch's own code.
    """
    original = get("end_capture")

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        ending.add(thread := threading.get_ident())
        try:
            call, *other_results = original(self, *args, **kwargs)
        finally:
            ending.discard(thread)
        return (captured(self.id, call), *other_results)

    return replaced("end_capture", observed)


@contextlib.contextmanager
def guard_hook(hook: Callable[[bool], Any]) -> Iterator[None]:
    """Call `hook(hit)` whenever Dynamo has looked in its cache for compiled code of a frame.

    The hook's result decides if Dynamo uses the code that it found. If another hook is installed,
    before or inside the context, ours is called first, and the result of the other hook decides.
    `torch.compiler.set_enable_guard_collectives` installs one and returns the one before.
    """
    install = get("guard_hook")
    other: Callable[[bool], Any] | None = install(None)

    def install_other(new: Callable[[bool], Any] | None) -> Any:
        """Take the place of torch's setter: install a hook that calls ours, then `new`."""
        nonlocal other
        if (current := get("guard_hook")) is not install_other:
            return current(new)  # imported by name inside a context that has ended
        before, other = other, new
        install(hook if new is None else lambda hit: (bool(hook(hit)), new(hit))[1])
        return before

    try:
        with replaced("guard_hook", install_other):
            install_other(other)
            yield
    finally:
        install(other)


class _SilentLogger:
    """A logger for compiled autograd that drops all messages.

    Without a logger, compiled autograd does not write its reasons into the structured trace.
    """

    def debug(self, *args: Any) -> None:
        """Drop a message."""


_SILENT = _SilentLogger()
"""The process-wide logger, never freed: torch keeps the pointer without a reference."""


class _Engine:
    """Autograd's engine, with an observer of `queue_callback`.

    It replaces the engine, which is an object of C++ whose methods cannot be replaced.
    """

    def __init__(self, queued: Callable[[Any], None]):
        self._queued = queued
        self._engine = get("execution_engine")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def queue_callback(self, callback: Callable[[], None]) -> None:
        self._queued(callback)
        self._engine.queue_callback(callback)


def on_final_callback(queued: Callable[[Any], None]) -> Replaced:
    """Call `queued(callback)` for each function that a backward will call at its end."""
    return replaced("execution_engine", _Engine(queued))


@contextlib.contextmanager
def compiled_autograd_reasons() -> Iterator[None]:
    """Make compiled autograd write the reason for each capture into the structured trace."""
    if get("verbose_logging_enabled")():
        yield
        return
    install, reset = get("set_verbose_logger"), get("reset_compiled_autograd")

    def armed_again() -> None:
        """Reset compiled autograd, which removes the logger, and install it again."""
        reset()
        install(_SILENT)

    install(_SILENT)
    try:
        with replaced("reset_compiled_autograd", armed_again):
            yield
    finally:
        install(None)


def code_being_compiled() -> CodeType | None:
    """Return the code that Dynamo is compiling, or refusing to compile; `None` if there is none.

    It is a local variable of `convert_frame._compile`.
    """
    code = _local_of_compile("code")
    return code if isinstance(code, CodeType) else None


def gave_up_frame() -> bool:
    """Return True if Dynamo ends a compilation without code, although it reports no failure.

    torch 2.9 and 2.10 do so at a graph break in a loop.
    """
    return getattr(_local_of_compile("guarded_code"), "guarded_code", True) is None


def _local_of_compile(name: str) -> Any:
    """Return a local variable of the running `_compile`, `None` if Dynamo is not compiling."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code.co_name == "_compile":
            return local_of(frame, name)
    return None


def traced_lines() -> tuple[tuple[str, int, str, str], ...]:
    """Return the user's lines that Dynamo is tracing: file, line, function, code; outermost first.

    AOTAutograd reports the lines of the op that it traces, if it has any.
    """
    frames = get("tracing_context_class").extract_stack()
    return tuple((f.filename, f.lineno or 0, f.name, (f.line or "").strip()) for f in frames)


def traced_files() -> frozenset[str]:
    """Return the files of the functions traced so far by the current compilation."""
    context = get("tracing_context")()
    return frozenset(code.co_filename for code in getattr(context, "traced_code", ()))


def torch_function_modes() -> list[Any]:
    """Return the active torch function modes, outermost first."""
    return list(get("function_modes")())


def global_state() -> dict[str, Any]:
    """Return the process state that each compilation has a guard on, by torch's names."""
    return dict(json.loads(get("global_state")().__getstate__()))


def compiled_autograd_is_on() -> bool:
    """Return True if compiled autograd is enabled, so a backward would be captured now."""
    return bool(get("compiled_autograd_enabled"))
