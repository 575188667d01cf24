"""The garbage collector, paused while many objects are made that all stay."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Let the cyclic garbage collector wait.

    Each few hundred new objects it looks whether they are garbage, and at times at all objects of
    the process, of which torch alone makes half a million. Of a graph that is being built nothing
    is garbage. It is for code of ours alone, never around the target's.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
