"""One capture at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ...errors import CaptureError

_lock = threading.Lock()
_owner: list[int] = []
"""The thread that is making a capture."""


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Keep every other capture from being made meanwhile.

    A capture changes what all threads share, such as the RNG, Dynamo's caches and methods of
    tensors, and puts it back: two at once would each put back what the other one had made of it.
    One inside the target of another would also have its ops in both. Waiting for the other one
    could be for ever, because its target may be waiting for this thread.

    Raises:
        CaptureError: if a capture is being made, in this thread or in another one.
    """
    if not _lock.acquire(blocking=False):
        if threading.get_ident() in _owner:
            raise CaptureError(
                "a capture is made inside another one, by its target or its loss_fn: both would "
                "hold what the inner one runs, and each resets and restores the same things (the "
                "RNG, Dynamo). Make one after the other"
            )
        raise CaptureError(
            "another thread is in the middle of a capture, and a capture changes and restores what "
            "all threads share (the RNG, Dynamo): make one after the other"
        )
    _owner.append(threading.get_ident())
    try:
        yield
    finally:
        _owner.clear()
        _lock.release()
