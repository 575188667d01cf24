"""Every private name of torch that the package touches, each with what it is and a probe.

torch makes no promise for these. A name that is missing makes the feature that needs it
unavailable, with a message that says so; it never makes a check pass. `probe()` says what is there,
and the test suite runs it on every supported release.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["TorchDispatchMode"]


@contextlib.contextmanager
def counters_restored() -> Iterator[None]:
    """Put `torch._dynamo.utils.counters` (since 2.0) back as they were."""
    from torch._dynamo.utils import counters

    before = {key: Counter(value) for key, value in counters.items()}
    try:
        yield
    finally:
        for key in list(counters):
            if key not in before:
                del counters[key]
            else:
                counters[key].clear()
                counters[key].update(before[key])


def reset_dynamo() -> None:
    """`torch._dynamo.reset()` (since 2.0), keeping the callbacks that it would drop."""
    import torch._dynamo
    from torch._dynamo.callback import callback_handler

    start = list(callback_handler.start_callbacks)
    end = list(callback_handler.end_callbacks)
    torch._dynamo.reset()
    callback_handler.start_callbacks[:] = start
    callback_handler.end_callbacks[:] = end


def stance() -> str:
    """The stance that `torch.compiler.set_stance` set (since 2.6); "default" lets it compile."""
    from torch._dynamo import eval_frame

    return str(eval_frame._stance.stance)


def compile_is_disabled() -> str:
    """What switches `torch.compile` off for the whole process, or ""."""
    import os

    from torch._dynamo import config

    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable, "0") == "1":
            return f"the environment variable {variable}=1"
    return "torch._dynamo.config.disable" if config.disable else ""


def is_compiled(target: Any) -> bool:
    """Whether a target has been through `torch.compile` already (since 2.0)."""
    from torch._dynamo.eval_frame import OptimizedModule

    if isinstance(target, OptimizedModule):
        return True
    if isinstance(target, torch.nn.Module):
        return getattr(target, "_compiled_call_impl", None) is not None
    return hasattr(target, "_torchdynamo_orig_callable")


@contextlib.contextmanager
def on_compiled_region(entered: Callable[[str], None]) -> Iterator[None]:
    """Call `entered(name)` whenever a compiled function is entered, before any of it runs.

    Wraps `torch._dynamo.eval_frame._callback_from_stance`, which every entry calls (since 2.6),
    from the frame `compile_wrapper` for a compiled function.
    """
    import sys

    from torch._dynamo import eval_frame

    original = eval_frame._callback_from_stance

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "compile_wrapper":
            function = caller.f_locals.get("fn")
            entered(getattr(function, "__qualname__", ""))
        return original(*args, **kwargs)

    eval_frame._callback_from_stance = wrapped
    try:
        yield
    finally:
        eval_frame._callback_from_stance = original


def frames_seen() -> bool:
    """Whether Dynamo looked at any frame since its counters were cleared (since 2.0)."""
    from torch._dynamo.utils import counters

    return bool(counters["frames"])


def modes_that_stop_compilation() -> list[str]:
    """Names of the active dispatch modes under which Dynamo compiles nothing, outermost first.

    Those that do not declare `ignore_compile_internals` (since 2.9).
    """
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return [
        type(mode).__name__
        for mode in _get_current_dispatch_mode_stack()
        if not type(mode).ignore_compile_internals()
    ]


def sequence_number() -> Callable[[], int]:
    """The function that gives the number of this thread's next autograd node (since 1.13)."""
    return torch._C._autograd._get_sequence_nr


def current_autograd_node() -> Callable[[], Any]:
    """The function that gives the autograd node which is running its backward (since 1.13)."""
    return torch._C._current_autograd_node


def storage_ref() -> type[Any]:
    """`StorageWeakRef`: pins the identity of a storage, not its memory (since 1.8)."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef


def aot_autograd(**compilers: Any) -> Callable[..., Any]:
    """A Dynamo backend that runs AOTAutograd (`torch._dynamo.backends.common`, since 2.0)."""
    from torch._dynamo.backends.common import aot_autograd as make

    return make(**compilers)


def boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A callable in the boxed calling convention (`torch._functorch`, since 2.0)."""
    from functorch.compile import make_boxed_func

    return make_boxed_func(call)  # type: ignore[no-any-return]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings that torch raises about itself while it compiles.

    Under `-W error` they would end the compilation of code that is fine. Warnings about the code of
    the user are attributed to that code, and stay.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch(\.|$)")
        yield


@contextlib.contextmanager
def structured_trace(emit: Callable[[dict[str, Any], str], None]) -> Iterator[None]:
    """Call `emit(metadata, payload)` for each record of torch's structured trace (since 2.3).

    The logger's format is not promised either; `torch._logging._internal` writes it.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            emit(getattr(record, "metadata", {}), getattr(record, "payload", None) or "")

    logger = logging.getLogger("torch.__trace")
    handler = Handler(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
