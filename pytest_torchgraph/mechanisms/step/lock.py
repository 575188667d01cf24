"""One capture at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ...errors import CaptureError

_lock = threading.RLock()
_inside: list[bool] = []
"""For each capture that this thread is in the middle of, whether it resets Dynamo."""


@contextlib.contextmanager
def exclusive(*, resets: bool) -> Iterator[None]:
    """Keep other threads from capturing meanwhile.

    A capture changes what all threads share, such as the RNG, Dynamo's caches and methods of
    tensors, and puts it back: two at once would each put back what the other one had made of it. A
    capture inside another one, in the same thread, does no harm unless one of them resets Dynamo.
    Waiting for the other one could be for ever: its target may be waiting for this thread.

    Args:
        resets: whether the capture resets Dynamo.

    Raises:
        CaptureError: if another thread is in the middle of a capture; or this one is, and one of
            the two resets Dynamo.
    """
    if not _lock.acquire(blocking=False):
        raise CaptureError(
            "another thread is in the middle of a capture, and a capture changes and restores what "
            "all threads share (the RNG, Dynamo): make one after the other"
        )
    try:
        if _inside and (resets or any(_inside)):
            raise CaptureError(
                "a capture is made inside another one, by its target or its loss_fn: both would "
                "hold what the inner one runs, and each resets and restores the same things (the "
                "RNG, Dynamo). Make one after the other"
            )
        _inside.append(resets)
        try:
            yield
        finally:
            _inside.pop()
    finally:
        _lock.release()
