"""Listeners for new captures: a run's page shows the captures of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .result import Capture

Made: TypeAlias = "Capture | Sequence[Capture]"
"""A capture, or the `Ranks` of a model, whose captures were reported individually before."""

_listeners: list[Callable[[Made], None]] = []


def notify(made: Made) -> None:
    """Report a new capture, a closed watch, or the captured ranks of a model."""
    for listener in _listeners:
        listener(made)


@contextmanager
def subscribed(listener: Callable[[Made], None]) -> Iterator[None]:
    """Call `listener` with every capture made inside the context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
