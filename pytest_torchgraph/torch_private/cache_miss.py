"""What Dynamo has before it when it says why it compiles code again.

cache_miss()    the frame that it was called for, and its earlier compilations
leaf_guards()   the guards of a compilation, each with the source that it is about
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

import torch

from .observers import local_of

_ASKS_FOR_REASONS = "get_and_maybe_log_recompilation_reasons"
"""torch's function that writes the reasons into the structured trace (since 2.7)."""


class CacheMiss(NamedTuple):
    """A call for which no earlier compilation of the code fits.

    It holds objects of the user's: use it where it was made, and do not keep it.

    Attributes:
        file: the file of the code.
        free: the names of the variables that it has from the functions around it.
        locals, globals: the variables of the call, before any of it ran.
        entries: the earlier compilations, the latest first.
        backend: what is to compile it now.
    """

    file: str
    free: tuple[str, ...]
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    entries: tuple[Any, ...]
    backend: Any

    def entry(self, compile_id: str) -> Any:
        """The earlier compilation of this id, as `0/1`; None where there is none."""
        return next((each for each in self.entries if str(each.compile_id) == compile_id), None)


def cache_miss() -> CacheMiss | None:
    """The cache miss that torch is writing the reasons of; None where it is doing no such thing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _ASKS_FOR_REASONS:
            missed = local_of(frame, "frame")
            entries, backend = local_of(frame, "cache_entries"), local_of(frame, "backend")
            caller = frame.f_back
            assert caller is not None
            if entries is None:  # before torch 2.13 a chain, at whose end this frame is by now
                entries = _chain(local_of(caller, "cache_entry"))
            if backend is None:  # before torch 2.11
                backend = local_of(caller, "compiler_fn")
            return CacheMiss(
                missed.f_code.co_filename,
                missed.f_code.co_freevars,
                missed.f_locals,
                missed.f_globals,
                tuple(entries),
                _innermost(backend),
            )
        frame = frame.f_back
    return None


def _chain(entry: Any) -> Iterator[Any]:
    while entry is not None:
        yield entry
        entry = entry.next


def _innermost(backend: Any) -> Any:
    """What was given to `torch.compile`, or torch's wrapper around its name."""
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend


class LeafGuard(NamedTuple):
    """A guard of a compilation.

    Attributes:
        source: Dynamo's source of the value that it checks, as `L['x']`; "" for what is about none.
        kind: torch's class of guards, as `TENSOR_MATCH`.
        texts: the checks, each with the line that made it in a comment.
    """

    source: str
    kind: str
    texts: tuple[str, ...]


def leaf_guards(entry: Any) -> Iterator[LeafGuard]:
    """The guards of an earlier compilation, in the order in which they are checked.

    Args:
        entry: one of `CacheMiss.entries`.
    """
    root = getattr(getattr(entry, "guard_manager", None), "root", None)
    todo = [] if root is None else [root]
    while todo:
        manager = todo.pop()
        source = getattr(manager, "get_source", str)()
        for guard in manager.get_leaf_guards():
            yield LeafGuard(source, type(guard).__name__, tuple(guard.verbose_code_parts()))
        pairs: dict[int, Any] = getattr(manager, "get_key_value_managers", dict)()
        inner = [each for pair in pairs.values() for each in pair if each is not None]
        todo += [*inner, *manager.get_child_managers()][::-1]


def shape_of(tensor: torch.Tensor, which: str) -> tuple[Any, ...]:
    """The sizes of a tensor, or its strides, without asking a mode of torch functions.

    Args:
        tensor: of one of torch's own types.
        which: `size` or `stride`.
    """
    with torch._C.DisableTorchFunction():
        return tuple(tensor.shape if which == "size" else tensor.stride())
