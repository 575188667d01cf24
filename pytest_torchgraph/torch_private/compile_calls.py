"""Calls of `torch.compile`, whatever is done with what they give, and of precompiled code."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .observers import leave_function_alone
from .private_names import get, has, replaced


@contextlib.contextmanager
def on_compile_call(called: Callable[[FrameType], None]) -> Iterator[None]:
    """Call `called(frame)` for each call of `torch.compile`, with a frame of torch's inside of it.

    `Module.compile`, `torch._dynamo.optimize` and torch's own uses count; what is exported, or
    given to `torch.compile` while that is switched off, does not.

    Raises:
        TorchGraphError: where this torch has no `OptimizeContext`.
    """
    original = get("optimize_context")

    def observed(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not kwargs.get("export"):
            called(sys._getframe(1))

    with replaced("optimize_context", observed):
        yield


@contextlib.contextmanager
def on_precompiled_call(called: Callable[[Any], None]) -> Iterator[None]:
    """Call `called(module)` for each call of a module from `torch.compiler.precompile.load`.

    Does nothing before torch 2.15, which has no such code.
    """
    if not _has_precompiled_code():
        yield
        return
    original = get("precompiled_call")

    @functools.wraps(original)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        called(self)
        return original(self, *args, **kwargs)

    if "torch._dynamo" in sys.modules:
        leave_function_alone(entered)
    with replaced("precompiled_call", entered):
        yield


@functools.cache
def _has_precompiled_code() -> bool:
    """`has`, which looks through the import path for a module that is not there."""
    return has("precompiled_call")
