"""Dynamo's state: resets, the stance, and conditions that stop compilation."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from .private_names import Replaced, get, replaced

_own_resets = 0


def own_resets() -> int:
    """Return the number of calls of `reset_dynamo` in this process."""
    return _own_resets


def reset_dynamo() -> None:
    """Call `torch._dynamo.reset()`, keeping the callbacks of `on_compile_start` and `_end`."""
    global _own_resets
    _own_resets += 1
    handler = get("callback_handler")
    start, end = list(handler.start_callbacks), list(handler.end_callbacks)
    get("reset")()
    handler.start_callbacks[:] = start
    handler.end_callbacks[:] = end


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Reset Dynamo before and after the context, and release the finalizers of its guards."""
    reset_dynamo()
    registry: Any = getattr(weakref.finalize, "_registry", {})
    before = set(registry)
    try:
        yield
    finally:
        reset_dynamo()
        # Dynamo's guards use `weakref.finalize` to watch the objects that they depend on.
        # Finalizers on torch's functions and modules live until the process ends, and each keeps
        # the fake tensors of its compilation alive: about 250 kB for a small model. After a reset
        # they have nothing left to invalidate.
        for finalizer in [registered for registered in registry if registered not in before]:
            call = finalizer.peek()
            bound = getattr(call[1], "func", None) if call else None
            if type(getattr(bound, "__self__", None)).__name__ == "CheckFunctionManager":
                finalizer.detach()


def stance() -> str:
    """Return the stance of `torch.compiler.set_stance`; "default" lets Dynamo compile."""
    return str(get("stance").stance)


def compile_is_disabled() -> str:
    """Return the setting that disables `torch.compile` for the whole process, "" if none does."""
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable, "0") == "1":
            return f"the environment variable {variable}=1"
    return "torch._dynamo.config.disable" if get("config").disable else ""


def nested_graph_breaks() -> bool:
    """Return True if Dynamo resumes inside a called function after a break (a setting since 2.9).

    Without this setting it stops inlining the call, and compiles the function separately.
    """
    return bool(getattr(get("config"), "nested_graph_breaks", False))


def is_compiled(target: Any) -> bool:
    """Return True for a result of `torch.compile`, or a module after `Module.compile()`."""
    if isinstance(target, get("optimized_module")):
        return bool(target.dynamo_ctx.callback)  # none after `torch.compiler.disable(module)`
    if isinstance(target, torch.nn.Module):
        return getattr(target, "_compiled_call_impl", None) is not None
    return hasattr(target, "_torchdynamo_orig_callable")


def uncompiled(target: Any) -> Any:
    """Return the function or module passed to `torch.compile`, else the target itself."""
    while isinstance(target, get("optimized_module")):
        target = target._orig_mod
    while (inner := getattr(target, "_torchdynamo_orig_callable", None)) is not None:
        if getattr(target, "_torchdynamo_disable", False):
            return target
        target = inner
    return target


def callback_of(target: Any) -> Any:
    """Return Dynamo's callback in a result of `torch.compile`, which holds the backend.

    Return `None` for a target that is not compiled.
    """
    if isinstance(target, get("optimized_module")):
        return target.dynamo_ctx.callback
    if hasattr(target, "_torchdynamo_orig_callable"):
        return inspect.getclosurevars(target).nonlocals.get("callback")
    return None


def on_compiled_region(entered: Callable[[Any], None]) -> Replaced:
    """Call `entered(function)` whenever a compiled function is entered, before any of it runs.

    Every entry calls `_callback_from_stance`. A compiled function calls it from the frame
    `compile_wrapper`, whose local `fn` is the function that was compiled.
    """

    def enter(callback: Any, caller: FrameType) -> Any:
        """Report the call, and undo what torch has begun if the report raises."""
        names = caller.f_locals
        try:
            entered(names.get("fn"))
        except BaseException:
            # torch enters contexts before its own `try`, which an error here would leave open.
            for cleanup in names.get("cleanups", ()):
                cleanup()
            if (override := names.get("prior_eval_frame_override")) is not None:  # torch 2.11
                caller.f_globals["set_eval_frame_override"](override)
            raise
        return callback

    return _with_callback(enter)


def _with_callback(change: Callable[[Any, FrameType], Any]) -> Replaced:
    """Make each call of a compiled function use `change(callback, frame)` as Dynamo's callback.

    The frame is `compile_wrapper`; see `on_compiled_region`.
    """
    original = get("callback_from_stance")

    def wrapped(callback: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "compile_wrapper":
            callback = change(callback, caller)
        return original(callback, *args, **kwargs)

    return replaced("callback_from_stance", wrapped)


def one_backend(callback: Any) -> Replaced:
    """Make all of the user's compiled functions and modules use the backend of the first one.

    Args:
        callback: Dynamo's callback whose backend to use; `None` for the first that is called.

    The user may already have compiled a part of a model for another backend. This backend would be
    used if the part is not traced together with its caller. Compilations by torch itself, such as
    bodies of higher-order ops that run eagerly, keep their backend.
    """
    first: list[Any] = [] if callback is None else [callback]

    def choose(callback: Any, caller: FrameType) -> Any:
        if callback in (None, False):  # Dynamo is off, or only runs what it has compiled
            return callback
        if not first:
            first.append(callback)
        # A function of torch.fx may be a graph of compiled autograd, so it keeps its backend.
        return callback if _is_of_torch(caller, _OF_USER[:2]) else first[0]

    return _with_callback(choose)


def run_eagerly(noted: Callable[[Any], None]) -> contextlib.AbstractContextManager[Any]:
    """Make the user's compiled functions run eagerly, and call `noted(backend)` for each call.

    `torch.compiler.set_stance("force_eager")` does not serve: it also stops the compilations by
    torch itself, without which `torch.cond` raises if a branch uses a parameter.
    """
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()

    def skip(callback: Any, caller: FrameType) -> Any:
        if callback in (None, False):  # as in `one_backend`
            return callback
        if _is_of_torch(caller, _OF_USER):
            return callback
        noted(callback)
        return None

    return _with_callback(skip)


_OF_USER = ("torch.nn.modules.", "torch.optim.", "torch.fx.")
"""Modules of torch that only the user compiles. Compiled autograd compiles the last one too."""


def _is_of_torch(caller: FrameType, of_user: tuple[str, ...]) -> bool:
    """Return True if torch itself compiled the function that is called.

    Args:
        caller: the frame `compile_wrapper`.
        of_user: beginnings of the names of torch's modules that the user compiles.
    """
    function = caller.f_locals.get("fn")
    module = str(getattr(function, "__module__", ""))
    # torch compiles inner functions. A compiled module of torch's is also inside one.
    is_inner = "<locals>" in getattr(function, "__qualname__", "")
    return is_inner and module.startswith("torch.") and not module.startswith(of_user)


def frames_seen() -> int:
    """Return the sum of Dynamo's frame counters: 0 if it has seen no frame since a reset."""
    return sum(get("counters")["frames"].values())


def modes_that_stop_compilation() -> list[str]:
    """Return the names of active dispatch modes that stop compilation, outermost first."""
    get("ignore_compile_internals")  # raises if this torch's modes lack it
    return [
        # torch enters `_FlopCounterMode` for the user's `FlopCounterMode`.
        type(mode).__name__.lstrip("_" if type(mode).__module__.startswith("torch.") else "")
        for mode in get("dispatch_modes")()
        if not type(mode).ignore_compile_internals()
    ]


def is_fake(tensor: torch.Tensor) -> bool:
    """Return True for a FakeTensor, which has a shape and no memory."""
    kind = type(tensor)
    plain = kind is torch.Tensor or kind is torch.nn.Parameter
    return not plain and isinstance(tensor, get("fake_tensor"))


@contextlib.contextmanager
def aside(mode: Any) -> Iterator[None]:
    """Disable a dispatch mode inside the context, if it is the innermost one."""
    count = get("dispatch_mode_count")()
    innermost = count > 0 and get("dispatch_mode_at")(count - 1) is mode
    if not innermost:
        yield
        return
    get("pop_dispatch_mode")(None)
    try:
        yield
    finally:
        get("push_dispatch_mode")(mode)
