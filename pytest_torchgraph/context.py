"""Facts about the running test session that every capture of the process needs.

A capture does not take these facts as arguments, because users also call `capture` in helpers that
have no fixture. The facts are global instead of in a `ContextVar`, because threads and event loops
that a test starts need them too. The hub of the watches is not part of the context: it stands for
the hooks of torch, of which a process has one set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Context:
    """Facts about the running test session.

    Attributes:
        root: directory that source paths are relative to, "" for the working directory.
        device: device type that the running test's captures must involve, `None` for any. Set
            while a test that uses `graph_device` runs, starting with its function-scoped fixtures.
        divergence: the number of seconds that a failed comparison with eager may spend on the
            search for the cause, from the ini value `torchgraph_divergence`.
    """

    def __init__(self) -> None:
        self.root = ""
        self.device: str | None = None
        self.divergence = 60.0
        self._listeners: list[Callable[[Any], None]] = []

    def notify(self, captured: Any) -> None:
        """Report a new `Capture`, a closed watch, or the captured `Ranks` of a model."""
        for listener in self._listeners:
            listener(captured)

    @contextmanager
    def subscribed(self, listener: Callable[[Any], None]) -> Iterator[None]:
        """Call `listener` with every capture made inside the context.

        The captures of `Ranks` are reported individually before their `Ranks`.
        """
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


CONTEXT = Context()
"""The context of this process."""
