"""torch's structured trace, and the warnings that torch raises about its own code."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Container, Iterator
from typing import Any


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
