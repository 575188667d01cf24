"""Tensor methods that wait for the device, but on the CPU dispatch no op that shows it."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import torch_private
from .model import COPIES, READS, STARTS

METHODS = {
    "tolist": READS,
    "numpy": READS,
    "__array__": READS,
    "__dlpack__": "",
    "__repr__": READS,
    "cpu": COPIES,
}
"""The methods, with the kind of the sync where the tensor is on another device; "" for no sync."""
_REPLACED: list[tuple[type, str, str]] = [
    *((torch.Tensor, name, name) for name in METHODS),
    (threading.Thread, "start", STARTS),
]
"""Owner and name of each method that is replaced, and what `on_method_call` reports for it."""


@contextlib.contextmanager
def on_method_call(report: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `report(name, tensor)` when one of `METHODS` is called, but not inside another.

    Calls in any thread are reported. For each thread that is started, whose ops a dispatch mode
    does not see, it is `report(STARTS, thread)`.

    They are replaced in `torch.Tensor`: a TorchFunctionMode would change what runs, because torch
    takes other paths where one is active. What somebody else replaces meanwhile stays as it is.
    """
    inside = threading.local()
    if "torch._dynamo" in sys.modules:  # which is offered all that runs below compiled code
        _leave_alone()
    replaced: list[tuple[type, str, Any, Any]] = []

    def observed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not replaced or getattr(inside, "one", False):
                return original(*args, **kwargs)
            report(name, args[0] if args else None)
            inside.one = True
            try:
                return original(*args, **kwargs)
            finally:
                inside.one = False

        return called

    try:
        for owner, name, reported in _REPLACED:
            new = observed(reported, getattr(owner, name))
            replaced.append((owner, name, vars(owner).get(name), new))
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, own, new in replaced:
            if vars(owner).get(name) is not new:
                continue
            if own is not None:
                setattr(owner, name, own)
            else:
                delattr(owner, name)
        replaced.clear()


@functools.cache
def _leave_alone() -> None:
    """Keep Dynamo from what stands in the place of the methods; looking for modules takes 1 ms."""
    torch_private.leave_alone(__name__)
