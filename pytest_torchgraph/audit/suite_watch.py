"""Watching every test of a suite, without importing anything that the suite does not import.

Nothing happens until `torch._dynamo` is imported: nothing can be compiled before. Then the
observers are installed once and stay, for a recorder that keeps nothing, so that a test that
compiles nothing pays for two short calls. They are removed after each test that compiled
something, because their counters would keep all compiled code of the run alive.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..watching.observe.recorder import EventRecorder
    from ..watching.record import WatchRecord

DYNAMO = "torch._dynamo"


class SuiteWatch:
    """Watches one test after the other.

    Attributes:
        broken: what kept it from watching, an error of ours; None while all is well.
    """

    def __init__(self) -> None:
        self.broken: Exception | None = None
        self._running = False
        self._recorder: EventRecorder | None = None
        self._keeper: EventRecorder | None = None
        self._finder: _DynamoFinder | None = None
        if DYNAMO not in sys.modules:
            self._finder = _DynamoFinder(self._imported)
            sys.meta_path.insert(0, self._finder)

    def begin(self) -> None:
        """Watch from now on, or from when Dynamo is imported."""
        self._running = True
        if DYNAMO in sys.modules:
            self._open()

    def end(self) -> WatchRecord | None:
        """What was seen since `begin`; None where nothing was compiled, called or run."""
        self._running = False
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return None
        from ..watching.observe.hub import HUB

        HUB.close(recorder)
        if recorder.events and self._keeper is not None:
            HUB.close(self._keeper)
            self._keeper = None
        if recorder.broken is not None:
            self.broken = self.broken or recorder.broken
            return None
        if recorder.saw_nothing:
            return None
        from ..watching.record import record_of

        return record_of(recorder)

    def close(self) -> None:
        """Leave nothing behind."""
        self.end()
        if self._keeper is not None:
            from ..watching.observe.hub import HUB

            HUB.close(self._keeper)
            self._keeper = None
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def _imported(self) -> None:
        if self._running:
            self._open()

    def _open(self) -> None:
        if self.broken is not None:
            return
        try:
            from ..watching.observe.hub import HUB
            from ..watching.observe.recorder import EventRecorder, IdleRecorder

            if self._keeper is None:
                keeper = IdleRecorder()
                HUB.open(keeper)
                self._keeper = keeper
            recorder = EventRecorder(passive=True, with_graphs=False)
            HUB.open(recorder)
            self._recorder = recorder
        except Exception as error:  # ours, in the middle of an import or a test of the user's
            self.broken = error


class _DynamoFinder(MetaPathFinder):
    """Calls a function as soon as `torch._dynamo` has been imported."""

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that tells when it is done."""
        if fullname != DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Told(spec.loader, self._imported)
        return spec


class _Told(Loader):
    """A loader that calls a function when it has executed its module."""

    def __init__(self, loader: Loader, done: Callable[[], None]) -> None:
        self._loader = loader
        self._done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader behind it does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the loader behind it does; the module keeps that loader."""
        spec = module.__spec__
        assert spec is not None
        module.__loader__ = spec.loader = self._loader
        self._loader.exec_module(module)
        self._done()
