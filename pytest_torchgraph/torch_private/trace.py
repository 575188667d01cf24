"""torch's structured trace and warnings, and what Dynamo knows when it compiles again.

cache_miss()    the frame that it was called for, and its earlier compilations
leaf_guards()   the guards of a compilation, each with the source that it is about
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

import torch

from .observers import local_of


@contextlib.contextmanager
def ignore_torch_warnings() -> Iterator[None]:
    """Ignore the warnings about torch's own code that are raised while it compiles.

    Under `-W error` they would end the compilation of code that is fine. Warnings about the code of
    the user are attributed to that code, and stay.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch(\.|$)")
        yield


@contextlib.contextmanager
def structured_trace(
    emit: Callable[[dict[str, Any], str], None], names: Container[str] | None = None
) -> Iterator[None]:
    """Call `emit(metadata, payload)` for each record of torch's structured trace (since 2.3).

    The records' format is not promised either; `torch._logging._internal` writes them.

    Args:
        emit: takes a record's metadata, a dict with the record's name as a key, and its payload,
            "" where it has none.
        names: the records that are wanted, artifacts by their own name; None for all. Others are
            not even made where nobody else listens: what torch writes about the guards and inputs
            of a BERT takes a tenth of the time in which Dynamo traces it.
    """
    logger = logging.getLogger("torch.__trace")
    handler = _TraceHandler(emit, names)
    if not isinstance(logger.handlers, _TraceHandlers):
        logger.handlers = _TraceHandlers(logger.handlers)
    logger.addHandler(handler)
    # As torch does since 2.13: else `logging.disable` silences the trace, and nothing is seen.
    vars(logger).setdefault("isEnabledFor", _always)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        if not any(isinstance(each, _TraceHandler) for each in logger.handlers):
            logger.handlers = list(logger.handlers)
            if vars(logger).get("isEnabledFor") is _always:
                del vars(logger)["isEnabledFor"]


def _always(_level: int) -> bool:
    return True


class _TraceHandler(logging.Handler):
    """A handler that calls a function with each record that is wanted.

    Attributes:
        hand_on: the function.
        names: the names of the wanted records; None for all.
    """

    def __init__(
        self, emit: Callable[[dict[str, Any], str], None], names: Container[str] | None
    ) -> None:
        super().__init__(logging.DEBUG)
        self.hand_on = emit
        self.names = names

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", {})
        if self.names is not None:
            artifact = metadata.get("artifact")
            names = (artifact.get("name"),) if isinstance(artifact, dict) else metadata
            if not any(name in self.names for name in names):
                return
        self.hand_on(metadata, getattr(record, "payload", None) or "")


class _TraceHandlers(list[logging.Handler]):
    """The handlers of the trace's logger: false for a record that none of them wants.

    `trace_structured` tests `trace_log.handlers` before it makes a record. Anybody else who tests
    the list learns whether it is empty.
    """

    def __bool__(self) -> bool:
        caller = sys._getframe(1)
        if caller.f_code.co_name != "trace_structured":
            return len(self) > 0
        name = caller.f_locals.get("name")
        if name == "artifact":
            name = caller.f_locals["metadata_fn"]().get("name")
        return any(
            not isinstance(each, _TraceHandler) or each.names is None or name in each.names
            for each in self
        )


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
