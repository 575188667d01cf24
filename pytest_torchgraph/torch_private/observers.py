"""Callbacks while Dynamo and compiled autograd compile and run code.

    on_entry                        a compiled callable is called
    on_traced_call                  a compiled callable is called while torch.export traces
    guard_hook                      Dynamo looked for compiled code of a frame
    on_skip                         Dynamo leaves a whole frame to the interpreter
    on_break_stack                  Dynamo is about to report a graph break
    on_compiled_autograd_capture    compiled autograd has captured a backward
    compiled_autograd_reasons       why it did, in the structured trace

Each is a context manager that puts a function in the place of one of torch's, which it calls, and
takes it out at the end. `leave_alone` keeps Dynamo from tracing those functions of ours.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from .private_names import get, has, replaced


@contextlib.contextmanager
def on_entry(observer: Callable[[Callable[[], Any]], Callable[[], Any]]) -> Iterator[None]:
    """Put `observer(original)` in the place of `_is_skip_guard_eval_unsafe_stance`.

    torch calls that, without arguments, whenever a compiled callable is called, before any of it
    runs: from the frame `compile_wrapper`, whose local `fn` is what was compiled.
    """
    with replaced("skip_guard_eval_unsafe", observer(get("skip_guard_eval_unsafe"))):
        yield


@contextlib.contextmanager
def on_traced_call(traced: Callable[[Any], None]) -> Iterator[None]:
    """Call `traced(function)` when `torch.export` traces through a call of a compiled callable.

    Then the frame `compile_wrapper` calls its function right away, without Dynamo, unless
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

    with replaced("in_hop_compile", observed):
        yield


def current_stance() -> Callable[[str], Any]:
    """The getter of the globals of `eval_frame`: called with "_stance", it gives the stance.

    It is a method of a dict, written in C, so that a warm call costs no further Python frame.
    """
    get("stance")
    return vars(sys.modules["torch._dynamo.eval_frame"]).__getitem__


_OURS = __package__.partition(".")[0]

_left_alone: set[str] = set()
"""The modules whose functions Dynamo skips already."""


def leave_alone(*packages: str) -> None:
    """Keep Dynamo from tracing the functions of this package and of some others of ours.

    With compiled autograd the observers run inside compiled code. A module that is imported later
    is not included until the next call.

    Args:
        packages: full names, as `pytest_torchgraph.watching`. Included is what is below them, not
            a package whose name merely begins alike, as `pytest_torchgraph.watching_more`.
    """
    for name in [each for each in sys.modules if each.startswith(_OURS)]:
        if name not in _left_alone and _is_in(name, __package__, *packages):
            _left_alone.add(name)
            for value in vars(sys.modules[name]).values():
                _skip_code_of(value)


@functools.cache
def leave_function_alone(function: Callable[..., Any]) -> None:
    """Keep Dynamo from a function of ours and from all that it calls, as `leave_alone` does."""
    _skip_code(function.__code__)


def _is_in(module: str, *packages: str) -> bool:
    """Whether a module is one of these packages, or below one."""
    return f"{module}.".startswith(tuple(f"{package}." for package in packages))


def _skip_code_of(value: Any) -> None:
    """Keep Dynamo from a function of ours, or from the methods and properties of a class."""
    if isinstance(value, FunctionType) and _is_in(value.__module__, _OURS):
        _skip_code(inspect.unwrap(value).__code__)
    elif isinstance(value, type) and _is_in(value.__module__, _OURS):
        for each in vars(value).values():
            function = getattr(each, "fget", getattr(each, "__func__", each))
            if isinstance(function, FunctionType):
                _skip_code(inspect.unwrap(function).__code__)


def _skip_code(code: CodeType) -> None:
    """Keep Dynamo from a function, from those inside it, and from the functions that they call.

    Functions of `_CALLING_TORCH` call torch's original, which Dynamo treats as always.
    """
    action = get("frame_action")
    calls = action.DEFAULT if code.co_name in _CALLING_TORCH else action.SKIP
    get("skip_code")(code, get("frame_strategy")(action.SKIP, calls))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _skip_code(constant)


_CALLING_TORCH = frozenset({"entered", "observed", "armed_again"})
"""The names of our functions that stand in the place of one of torch's, and call it."""


@contextlib.contextmanager
def on_skip(skipped: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `skipped(reason, frame)` for each frame that Dynamo leaves to the interpreter.

    The reason is torch's own text since torch 2.13; before, "frame is in the Dynamo skipfiles list"
    or that this release does not say why.

    Raises:
        TorchGraphError: where this torch has none of the functions that tell.
    """
    if not has("skip_reason"):
        with _on_skip_without_reasons(skipped):
            yield
        return
    original = get("skip_reason")

    def observed(reason: str, frame: Any) -> Any:
        skipped(reason, frame)
        return original(reason, frame)

    with replaced("skip_reason", observed):
        yield


@contextlib.contextmanager
def _on_skip_without_reasons(skipped: Callable[[str, Any], None]) -> Iterator[None]:
    """`on_skip` for a torch that does not report reasons: reports those that can be inferred."""
    original = get("convert_frame")
    in_skipfiles = get("in_skipfiles")

    def observed(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, frame, *args, **kwargs)
        if getattr(result, "guarded_code", None) is None:
            if in_skipfiles(frame.f_code):
                skipped("frame is in the Dynamo skipfiles list", frame)
            else:
                skipped("this release of torch does not say why", frame)
        return result

    with replaced("convert_frame", observed):
        yield


@contextlib.contextmanager
def on_break_stack(reported: Callable[[Any, str], None]) -> Iterator[None]:
    """Call `reported(frames, module)` when Dynamo is about to report a graph break.

    `frames` is the whole stack. The report itself has it after `collapse_resume_frames`, which
    takes a function called by one of the same name for a resume function: of a `forward` that calls
    a `forward` it shows the inner one alone.

    `module` is Dynamo's source of the submodule whose code broke, as `L['self'].layers.0`; "" for
    the compiled module itself.

    Raises:
        TorchGraphError: where this torch has no `collapse_resume_frames`.
    """
    original = get("collapse_resume_frames")

    def observed(frames: Any) -> Any:
        caller = sys._getframe(1)
        while caller.f_code is observed.__code__ and caller.f_back is not None:
            caller = caller.f_back  # a second observer
        reported(frames, _module_of(local_of(caller, "exc")))
        return original(frames)

    with replaced("collapse_resume_frames", observed):
        yield


def local_of(frame: FrameType, name: str) -> Any:
    """A local variable of a frame of a function of torch's, None where it has none.

    Before Python 3.13 the frame keeps the dict that `f_locals` makes of all its variables, and with
    it what they were: an exception, though its handler has ended, and by it every frame and tensor
    of its traceback, until the garbage collector comes. So the dict is emptied again.
    """
    variables = frame.f_locals
    value = variables.get(name)
    if type(variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()
    return value


def _module_of(error: BaseException | None) -> str:
    """The source of the submodule that Dynamo was tracing where this was raised, "" for none.

    The innermost translator in the traceback knows it.
    """
    module = ""
    while error is not None and not module:
        traceback = error.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            of_dynamo = str(frame.f_globals.get("__name__", "")).startswith("torch._dynamo.")
            translator = local_of(frame, "self") if of_dynamo else None
            stack = _own_attribute(translator, "nn_module_stack")
            if isinstance(stack, dict) and stack:
                module = str(list(stack.values())[-1][0])
            traceback = traceback.tb_next
        error = error.__context__  # of a break behind which Dynamo could not resume
    return module


def _own_attribute(value: Any, name: str) -> Any:
    """An attribute, None for none, without the class's `__getattr__`.

    That of Dynamo's lazy variables makes them real, which changes what is compiled.
    """
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


@contextlib.contextmanager
def on_compiled_autograd_capture(captured: Callable[[int, Any], Any]) -> Iterator[None]:
    """Replace each function that compiled autograd compiles by `captured(id, function)`.

    The id is the capture's, as in `!0`.
    """
    original = get("end_capture")

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call, *rest = original(self, *args, **kwargs)
        return (captured(self.id, call), *rest)

    with replaced("end_capture", observed):
        yield


@contextlib.contextmanager
def guard_hook(hook: Callable[[bool], Any]) -> Iterator[None]:
    """Call `hook(hit)` whenever Dynamo has looked in its cache for compiled code of a frame.

    The hook's answer decides whether Dynamo takes what it found. Where another hook is installed
    already, ours is called first, and the other one's answer decides.
    """
    install = get("guard_hook")
    before = install(None)
    install(hook if before is None else lambda hit: (bool(hook(hit)), before(hit))[1])
    try:
        yield
    finally:
        install(before)


class _SilentLogger:
    """A verbose logger for compiled autograd that drops the messages.

    Compiled autograd writes its reasons into the structured trace only where there is a logger.
    """

    def debug(self, *args: Any) -> None:
        """Drop a message."""


_SILENT = _SilentLogger()
"""One for the whole process, never freed: torch keeps the pointer without a reference."""


@contextlib.contextmanager
def compiled_autograd_reasons() -> Iterator[None]:
    """Have compiled autograd put the reason for each capture into the structured trace."""
    if get("verbose_logging_enabled")():
        yield
        return
    install, reset = get("set_verbose_logger"), get("reset_compiled_autograd")

    def armed_again() -> None:
        reset()
        install(_SILENT)

    install(_SILENT)
    try:
        with replaced("reset_compiled_autograd", armed_again):
            yield
    finally:
        install(None)


def code_being_compiled() -> CodeType | None:
    """The code that Dynamo compiles, or refuses to, at this moment; None for none.

    It is a local variable of torch's `convert_frame._compile`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_compile":
            code = local_of(frame, "code")
            if isinstance(code, CodeType):
                return code
        frame = frame.f_back
    return None


def traced_files() -> frozenset[str]:
    """The files of the functions that the compilation in progress has traced so far."""
    context = get("tracing_context")()
    return frozenset(code.co_filename for code in getattr(context, "traced_code", ()))


def torch_function_modes() -> list[Any]:
    """The modes of torch functions that are in force, outermost first."""
    return list(get("function_modes")())


def compiled_autograd_is_on() -> bool:
    """Whether compiled autograd is enabled: a backward would be captured now."""
    return bool(get("compiled_autograd_enabled"))
