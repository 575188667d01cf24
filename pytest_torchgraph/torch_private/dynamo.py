"""Dynamo's state: resets, the stance, and what keeps it from compiling."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .private_names import get, replaced

_own_resets = 0


def own_resets() -> int:
    """How often `reset_dynamo` was called in this process."""
    return _own_resets


def reset_dynamo() -> None:
    """`torch._dynamo.reset()`, but the callbacks of `on_compile_start` and `_end` stay."""
    global _own_resets
    _own_resets += 1
    handler = get("callback_handler")
    start, end = list(handler.start_callbacks), list(handler.end_callbacks)
    get("reset")()
    handler.start_callbacks[:] = start
    handler.end_callbacks[:] = end


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Reset Dynamo before and after, and release the finalizers of its guards.

    Dynamo's guards watch the objects that they depend on with `weakref.finalize`. Those on the
    functions and modules of torch stay until the process ends, and each holds the fake tensors of
    its compilation: about 250 kB for a small model. After a reset they have nothing to invalidate.
    """
    reset_dynamo()
    registry: Any = getattr(weakref.finalize, "_registry", {})
    before = set(registry)
    try:
        yield
    finally:
        reset_dynamo()
        for finalizer in [each for each in registry if each not in before]:
            alive = finalizer.peek()
            bound = getattr(alive[1], "func", None) if alive else None
            if type(getattr(bound, "__self__", None)).__name__ == "CheckFunctionManager":
                finalizer.detach()


def stance() -> str:
    """The stance that `torch.compiler.set_stance` set; "default" lets Dynamo compile."""
    return str(get("stance").stance)


def compile_is_disabled() -> str:
    """The setting that switches `torch.compile` off for the whole process, "" for none."""
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable, "0") == "1":
            return f"the environment variable {variable}=1"
    return "torch._dynamo.config.disable" if get("config").disable else ""


def nested_graph_breaks() -> bool:
    """Whether Dynamo resumes inside of a called function behind a break (a setting since 2.9).

    Where it does not, it gives up the call, and compiles the function by itself.
    """
    return bool(getattr(get("config"), "nested_graph_breaks", False))


def is_compiled(target: Any) -> bool:
    """Whether a function or module is a result of `torch.compile`, or of `Module.compile()`."""
    if isinstance(target, get("optimized_module")):
        return True
    if isinstance(target, torch.nn.Module):
        return getattr(target, "_compiled_call_impl", None) is not None
    return hasattr(target, "_torchdynamo_orig_callable")


def uncompiled(target: Any) -> Any:
    """The function or module that `torch.compile` was called with; others as they are."""
    while isinstance(target, get("optimized_module")):
        target = target._orig_mod
    while (inner := getattr(target, "_torchdynamo_orig_callable", None)) is not None:
        if getattr(target, "_torchdynamo_disable", False):
            return target
        target = inner
    return target


@contextlib.contextmanager
def on_compiled_region(entered: Callable[[Any], None]) -> Iterator[None]:
    """Call `entered(function)` whenever a compiled function is entered, before any of it runs.

    Every entry calls `_callback_from_stance`: a compiled function from the frame
    `compile_wrapper`, whose local `fn` is what was compiled.
    """
    original = get("callback_from_stance")

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "compile_wrapper":
            entered(caller.f_locals.get("fn"))
        return original(*args, **kwargs)

    with replaced("callback_from_stance", wrapped):
        yield


@contextlib.contextmanager
def one_backend() -> Iterator[None]:
    """Let every function and module of the user's that is compiled use the first one's backend.

    A part of a model may be compiled already, for another backend. Where it is not traced as a part
    of its caller it would be compiled for that one. What torch compiles by itself, as the bodies of
    higher-order ops that run eagerly, is left alone.
    """
    original = get("callback_from_stance")
    first: list[Any] = []

    def wrapped(callback: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "compile_wrapper" and callback not in (None, False):
            module = str(getattr(caller.f_locals.get("fn"), "__module__", ""))
            if not first:
                first.append(callback)
            elif not module.startswith("torch.") or module.startswith("torch.nn.modules."):
                callback = first[0]
        return original(callback, *args, **kwargs)

    with replaced("callback_from_stance", wrapped):
        yield


def frames_seen() -> int:
    """The sum of Dynamo's frame counters: 0 where it tried to compile no frame since a reset."""
    return sum(get("counters")["frames"].values())


def modes_that_stop_compilation() -> list[str]:
    """Names of the active dispatch modes under which Dynamo compiles nothing, outermost first."""
    get("ignore_compile_internals")  # every mode has it, or the error says that torch does not
    return [
        # torch enters `_FlopCounterMode` for the `FlopCounterMode` that the user knows.
        type(mode).__name__.lstrip("_" if type(mode).__module__.startswith("torch.") else "")
        for mode in get("dispatch_modes")()
        if not type(mode).ignore_compile_internals()
    ]


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a FakeTensor: it has a shape and no memory."""
    kind = type(tensor)
    plain = kind is torch.Tensor or kind is torch.nn.Parameter
    return not plain and isinstance(tensor, get("fake_tensor"))


@contextlib.contextmanager
def aside(mode: Any) -> Iterator[None]:
    """Let ops pass a dispatch mode by, where it is the innermost one; else do nothing."""
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
