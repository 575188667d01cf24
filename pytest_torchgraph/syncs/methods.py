"""Methods of tensors that wait for the device and tell no dispatcher of it, on the CPU at least."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .model import COPIES, READS, STARTS

METHODS = {"tolist": READS, "__repr__": READS, "cpu": COPIES}
"""What each of them does where the tensor is on another device."""
_REPLACED: list[tuple[type, str, str]] = [
    *((torch.Tensor, name, name) for name in METHODS),
    (threading.Thread, "start", STARTS),
]
"""Owner, attribute, and what is noted."""


@contextlib.contextmanager
def noted(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note(name)` whenever one of `METHODS` is called, in any thread, from outside of them;
    and `note(STARTS)` for each thread that is started, whose ops a dispatch mode does not see.

    They are replaced in `torch.Tensor`: a TorchFunctionMode would change what runs, because torch
    takes other ways where one is active. What somebody else replaces meanwhile stays as it is.
    """
    inside = threading.local()
    replaced: list[tuple[type, str, Any, Any]] = []

    def observed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not replaced or getattr(inside, "one", False):
                return original(*args, **kwargs)
            note(name)
            inside.one = True
            try:
                return original(*args, **kwargs)
            finally:
                inside.one = False

        return called

    try:
        for owner, name, said in _REPLACED:
            new = observed(said, getattr(owner, name))
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
