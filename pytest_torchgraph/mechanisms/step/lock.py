"""One capture at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ...errors import CaptureError

_lock = threading.RLock()


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Keep other threads from capturing meanwhile.

    A capture changes what all threads share, such as the RNG, Dynamo's caches and methods of
    tensors, and puts it back: two at once would each put back what the other one had made of it. A
    capture inside another one, in the same thread, does no harm. Waiting for the other one could be
    for ever, because its target may be waiting for this thread.

    Raises:
        CaptureError: if another thread is in the middle of a capture.
    """
    if not _lock.acquire(blocking=False):
        raise CaptureError(
            "another thread is in the middle of a capture, and a capture changes and restores what "
            "all threads share (the RNG, Dynamo): make one after the other"
        )
    try:
        yield
    finally:
        _lock.release()
