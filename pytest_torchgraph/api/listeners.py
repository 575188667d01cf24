"""Who is told of the captures that are made: the page of a run shows those of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .result import Capture

Made: TypeAlias = "Capture | Sequence[Capture]"
"""A capture; or the `Ranks` of a model, of which each was made before as a capture."""

_listeners: list[Callable[[Made], None]] = []


def notify(made: Made) -> None:
    """A capture was made, a watch was closed, or all ranks of a model are captured."""
    for listener in _listeners:
        listener(made)


@contextmanager
def subscribed(listener: Callable[[Made], None]) -> Iterator[None]:
    """Have `listener` called with every capture that is made in the meantime."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
