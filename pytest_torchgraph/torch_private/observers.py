"""Observers of compiled code: entries, skipped frames, breaks, captures, found code."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from .names import get, has, replaced


@contextlib.contextmanager
def on_entry(observer: Callable[[Callable[[], Any]], Callable[[], Any]]) -> Iterator[None]:
    """Put `observer(original)` in the place of a function without arguments that torch calls, from
    the frame `compile_wrapper`, whenever a compiled callable is called, before any of it runs.

    The frame's local `fn` is what was compiled.
    """
    with replaced("unsafe_stance", observer(get("unsafe_stance"))):
        yield


def current_stance() -> Callable[[str], Any]:
    """A function, in C, that gives a global of the module that keeps the stance, `_stance`."""
    get("stance")
    return vars(sys.modules["torch._dynamo.eval_frame"]).__getitem__


_OURS = __package__.partition(".")[0]
_left_alone: set[str] = set()


def leave_alone(*packages: str) -> None:
    """Keep Dynamo from looking at the code of some of our packages, and of this one.

    With compiled autograd the observers run inside compiled regions.
    """
    ours = tuple(f"{package}." for package in (__package__, *packages))
    for name, module in list(sys.modules.items()):
        if name not in _left_alone and f"{name}.".startswith(ours):
            _left_alone.add(name)
            for value in vars(module).values():
                _skip_code_of(value)


def _skip_code_of(value: Any) -> None:
    if isinstance(value, FunctionType) and value.__module__.startswith(_OURS):
        _skip_code(inspect.unwrap(value).__code__)
    elif isinstance(value, type) and value.__module__.startswith(_OURS):
        for each in vars(value).values():
            function = getattr(each, "fget", getattr(each, "__func__", each))
            if isinstance(function, FunctionType):
                _skip_code(inspect.unwrap(function).__code__)


def _skip_code(code: CodeType) -> None:
    """Keep Dynamo from a function, and from what it calls but for the calls of torch's own."""
    action = get("frame_action")
    calls = action.DEFAULT if code.co_name in _CALLING_TORCH else action.SKIP
    get("skip_code")(code, get("frame_strategy")(action.SKIP, calls))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _skip_code(constant)


_CALLING_TORCH = frozenset({"entered", "observed", "armed_again"})
"""Functions that stand in for one of torch's, and call it."""


@contextlib.contextmanager
def on_skip(skipped: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `skipped(reason, frame)` for each frame that Dynamo leaves to the interpreter."""
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
    """The same where Dynamo keeps its reasons to itself: those that can be known are."""
    original = get("convert")
    in_skipfiles = get("in_skipfiles")

    def observed(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, frame, *args, **kwargs)
        if getattr(result, "guarded_code", None) is None:
            if in_skipfiles(frame.f_code):
                skipped("frame is in the Dynamo skipfiles list", frame)
            else:
                skipped("this release of torch does not say why", frame)
        return result

    with replaced("convert", observed):
        yield


@contextlib.contextmanager
def on_break_stack(reported: Callable[[Any, str], None]) -> Iterator[None]:
    """Call `reported(frames, module)` with the stack that Dynamo is about to report a break with,
    and with its name of the module whose code broke, "" for the one that is compiled.

    The report itself has it after `collapse_resume_frames`, which takes every call between two
    functions of one name for the rest of the first: of a `forward` that calls a `forward` it shows
    the inner one alone.
    """
    original = get("collapse")

    def observed(frames: Any) -> Any:
        caller = sys._getframe(1)
        while caller.f_code is observed.__code__ and caller.f_back is not None:
            caller = caller.f_back  # a second observer
        reported(frames, _module_of(caller.f_locals.get("exc")))
        return original(frames)

    with replaced("collapse", observed):
        yield


def _module_of(error: BaseException | None) -> str:
    """The module that Dynamo was tracing where this was raised, as `L['self'].layers.0`."""
    found = ""
    while error is not None and not found:
        traceback = error.__traceback__
        while traceback is not None:
            translator = traceback.tb_frame.f_locals.get("self")
            stack = getattr(translator, "nn_module_stack", None)
            if isinstance(stack, dict) and stack:
                found = str(list(stack.values())[-1][0])
            traceback = traceback.tb_next
        error = error.__context__  # of a break behind which Dynamo could not resume
    return found


@contextlib.contextmanager
def on_rest_left(left: Callable[[CodeType, int], None]) -> Iterator[None]:
    """Call `left(code, line)` where Dynamo compiles a frame as far as that line, and leaves all
    that comes behind it to the interpreter, because it cannot resume there.

    The code is what Dynamo traced: the rest of a function has a name of its own.
    """
    original = get("rest_left")

    def observed(self: Any, instruction: Any) -> Any:
        line = getattr(instruction.positions, "lineno", None) or instruction.starts_line
        left(self.f_code, line or self.lineno)
        return original(self, instruction)

    with replaced("rest_left", observed):
        yield


@contextlib.contextmanager
def on_capture(captured: Callable[[int, Any], Any]) -> Iterator[None]:
    """Let `captured(number, call)` replace what compiled autograd will call for a capture."""
    original = get("end_capture")

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call, *rest = original(self, *args, **kwargs)
        return (captured(self.id, call), *rest)

    with replaced("end_capture", observed):
        yield


@contextlib.contextmanager
def guard_hook(hook: Callable[[bool], Any]) -> Iterator[None]:
    """Call `hook(found)` whenever Dynamo has looked for compiled code.

    A hook that is there already decides: then ours is called first, and its answer dropped.
    """
    install = get("guard_hook")
    before = install(None)
    install(hook if before is None else lambda found: (bool(hook(found)), before(found))[1])
    try:
        yield
    finally:
        install(before)


class _Silent:
    """A logger for compiled autograd: that there is one makes it trace its reasons."""

    def debug(self, *args: Any) -> None:
        """Take a message."""


_silent = _Silent()
"""Kept for ever: torch borrows the pointer."""


@contextlib.contextmanager
def autograd_reasons() -> Iterator[None]:
    """Have compiled autograd put the reason for each capture into the structured trace."""
    if get("autograd_verbose")():
        yield
        return
    install, reset = get("autograd_logger"), get("autograd_reset")

    def armed_again() -> None:
        reset()
        install(_silent)

    install(_silent)
    try:
        with replaced("autograd_reset", armed_again):
            yield
    finally:
        install(None)


def traced_files() -> frozenset[str]:
    """The files of the functions that the compilation in progress has traced."""
    context = get("tracing")()
    return frozenset(code.co_filename for code in getattr(context, "traced_code", ()))


def compiled_autograd_is_on() -> bool:
    """Whether compiled autograd takes over the backward at this moment."""
    return bool(get("compiled_autograd_enabled"))
