"""torch's structured trace and warnings, and Dynamo's data at a recompilation.

cache_miss()    the frame being recompiled, and its earlier compilations
leaf_guards()   the guards of a compilation, each with the source that it checks
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from types import CodeType
from typing import Any, NamedTuple

import torch

from .observers import local_of


@contextlib.contextmanager
def ignore_torch_warnings() -> Iterator[None]:
    """Ignore warnings about torch's own code while torch compiles.

    With `-W error` they would abort the compilation of correct code. Warnings about the user's code
    are attributed to that code and are not ignored.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch(\.|$)")
        yield


@contextlib.contextmanager
def structured_trace(
    emit: Callable[[dict[str, Any], str], None], names: Container[str] | None = None
) -> Iterator[None]:
    """Call `emit(metadata, payload)` for each record of torch's structured trace (since 2.3).

    The format of the records is not public either; `torch._logging._internal` writes them.

    Args:
        emit: receives a record's metadata, a dict with the record's name as a key, and its payload,
            "" if it has none.
        names: the wanted records, artifacts by their own name; `None` for all. torch does not
            create other records unless another handler listens. For a BERT, writing records about
            guards and inputs takes a tenth of Dynamo's tracing time.
    """
    logger = logging.getLogger("torch.__trace")
    handler = _TraceHandler(emit, names)
    if not isinstance(logger.handlers, _TraceHandlers):
        logger.handlers = _TraceHandlers(logger.handlers)
    logger.addHandler(handler)
    # Otherwise `logging.disable` would switch the trace off. torch does the same since 2.13.
    vars(logger).setdefault("isEnabledFor", _always)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        if not any(isinstance(installed, _TraceHandler) for installed in logger.handlers):
            logger.handlers = list(logger.handlers)
            if vars(logger).get("isEnabledFor") is _always:
                del vars(logger)["isEnabledFor"]


def _always(_level: int) -> bool:
    """Stand for `Logger.isEnabledFor`."""
    return True


class _TraceHandler(logging.Handler):
    """A handler that calls a function with each wanted record.

    Attributes:
        callback: the function.
        names: names of the wanted records; `None` for all.
    """

    def __init__(
        self, emit: Callable[[dict[str, Any], str], None], names: Container[str] | None
    ) -> None:
        super().__init__(logging.DEBUG)
        self.callback = emit
        self.names = names

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a wanted record to the function."""
        metadata = getattr(record, "metadata", {})
        if self.names is not None:
            artifact = metadata.get("artifact")
            names = (artifact.get("name"),) if isinstance(artifact, dict) else metadata
            if not any(name in self.names for name in names):
                return
        self.callback(metadata, getattr(record, "payload", None) or "")


class _TraceHandlers(list[logging.Handler]):
    """Handlers of the trace's logger, with a truth value that depends on the record.

    `trace_structured` tests `trace_log.handlers` before it creates a record. The list is then false
    if no handler wants this record. For any other caller it is false only if it is empty.
    """

    def __bool__(self) -> bool:
        caller = sys._getframe(1)
        if caller.f_code.co_name != "trace_structured":
            return len(self) > 0
        name = caller.f_locals.get("name")
        if name == "artifact":  # its own name is in the metadata
            name = caller.f_locals["metadata_fn"]().get("name")
        return any(
            not isinstance(handler, _TraceHandler) or handler.names is None or name in handler.names
            for handler in self
        )


_ASKS_FOR_REASONS = "get_and_maybe_log_recompilation_reasons"
"""torch's function that writes the recompile reasons into the structured trace (since 2.7)."""


class CacheMiss(NamedTuple):
    """A call for which Dynamo has no compilation of the code that fits.

    It refers to the user's objects, so use it immediately, and do not keep it.

    Attributes:
        code: the code.
        locals, globals: variables of the call, before any of it ran.
        entries: earlier compilations, latest first.
        backend: backend that is about to compile it.
    """

    code: CodeType
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    entries: tuple[Any, ...]
    backend: Any

    def entry(self, compile_id: str) -> Any:
        """Return the earlier compilation with this id, such as `0/1`; `None` if there is none."""
        return next((entry for entry in self.entries if str(entry.compile_id) == compile_id), None)


def cache_miss() -> CacheMiss | None:
    """Return the cache miss that torch is reporting; `None` if torch is not reporting one."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code.co_name == _ASKS_FOR_REASONS:
            missed = local_of(frame, "frame")
            entries, backend = local_of(frame, "cache_entries"), local_of(frame, "backend")
            caller = frame.f_back
            assert caller is not None
            if entries is None:
                # Before torch 2.13 the entries are a linked list. This frame has already walked to
                # its end, so read the first entry from the caller.
                entries = _chain(local_of(caller, "cache_entry"))
            if backend is None:  # before torch 2.11
                backend = local_of(caller, "compiler_fn")
            return CacheMiss(
                missed.f_code,
                missed.f_locals,
                missed.f_globals,
                tuple(entries),
                innermost_backend(backend),
            )
    return None


def _chain(entry: Any) -> Iterator[Any]:
    """Yield the entries of a linked list."""
    while entry is not None:
        yield entry
        entry = entry.next


def innermost_backend(backend: Any) -> Any:
    """Return torch's innermost wrapper of a backend, or the backend itself if it has none.

    Each wrapper holds what it wraps as `_torchdynamo_orig_backend`.
    """
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend


class LeafGuard(NamedTuple):
    """A guard of a compilation.

    Attributes:
        source: Dynamo's source of the checked value, such as `L['x']`; "" if it checks no value.
        kind: torch's guard class, such as `TENSOR_MATCH`.
        texts: the checks, each with the line that created it in a comment.
    """

    source: str
    kind: str
    texts: tuple[str, ...]


def leaf_guards(entry: Any) -> Iterator[LeafGuard]:
    """Yield the guards of an earlier compilation, in checking order.

    Args:
        entry: one of `CacheMiss.entries`.
    """
    root = getattr(getattr(entry, "guard_manager", None), "root", None)
    managers = [] if root is None else [root]
    while managers:
        manager = managers.pop()
        source = getattr(manager, "get_source", str)()
        for guard in manager.get_leaf_guards():
            yield LeafGuard(source, type(guard).__name__, tuple(guard.verbose_code_parts()))
        pairs: dict[int, Any] = getattr(manager, "get_key_value_managers", dict)()
        inner = [child for pair in pairs.values() for child in pair if child is not None]
        # Reversed, because the last one is popped first.
        managers += [*inner, *manager.get_child_managers()][::-1]


def shape_of(tensor: torch.Tensor, kind: str) -> tuple[Any, ...]:
    """Return the sizes or strides of a tensor, bypassing torch function modes.

    Args:
        tensor: a tensor of one of torch's own types.
        kind: `size` or `stride`.
    """
    with torch._C.DisableTorchFunction():
        return tuple(tensor.shape if kind == "size" else tensor.stride())
