"""Who is told of the captures that are made: the page of a run shows those of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Capture

_listeners: list[Callable[[Capture], None]] = []


def notify(capture: Capture) -> None:
    """A capture was made, or a watch was closed."""
    for listener in _listeners:
        listener(capture)


@contextmanager
def subscribed(listener: Callable[[Capture], None]) -> Iterator[None]:
    """Have `listener` called with every capture that is made in the meantime."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
