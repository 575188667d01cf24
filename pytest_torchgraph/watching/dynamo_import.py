"""Observes the import of Dynamo. Nothing can be compiled earlier, so nothing need be watched.

A suite may import torch without Dynamo, or not import torch at all. Watching its tests must not
import either.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

DYNAMO = "torch._dynamo"


def is_imported() -> bool:
    """Return True if Dynamo is imported."""
    return DYNAMO in sys.modules


@contextlib.contextmanager
def from_import_on(context: AbstractContextManager[None]) -> Iterator[None]:
    """Enter a context now or, if Dynamo is not imported yet, once it is imported.

    If Dynamo is never imported, the context is never entered.
    """
    with ExitStack() as stack:
        if is_imported():
            stack.enter_context(context)
        else:
            finder = DynamoFinder(lambda: stack.enter_context(context))
            stack.callback(finder.remove)
        yield


class DynamoFinder(MetaPathFinder):
    """Finder that calls a function once, as soon as `torch._dynamo` has been imported."""

    def __init__(self, imported: Callable[[], object]) -> None:
        self._imported = imported
        self._is_searching = False
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop waiting for the import."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module, with a loader that notifies after the import.

        The finder stays installed, because a caller may only want to know if the module exists.
        """
        # The search for the real spec asks this finder again.
        if fullname != DYNAMO or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _NotifyingLoader(spec.loader, self._notify)
        return spec

    def _notify(self) -> None:
        # After `remove`, a loader may still be in use.
        if self in sys.meta_path:
            self.remove()
            self._imported()


class _NotifyingLoader(Loader):
    """A loader that calls a function after executing its module."""

    def __init__(self, loader: Loader, done: Callable[[], None]) -> None:
        self._loader = loader
        self._notify = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Delegate to the wrapped loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Delegate to the wrapped loader, and restore that loader on the module."""
        spec = module.__spec__
        assert spec is not None
        module.__loader__ = spec.loader = self._loader
        self._loader.exec_module(module)
        self._notify()
