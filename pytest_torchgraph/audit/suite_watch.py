"""Watching every test of a suite, without importing anything that the suite does not import.

Nothing happens until `torch._dynamo` is imported: nothing can be compiled before. Then the
observers are installed once and stay, for a recorder that keeps nothing, so that a test that
compiles nothing pays for two short calls. They are removed after each test that compiled
something, because their counters would keep all compiled code of the run alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..watching.dynamo_import import DynamoFinder, is_imported

if TYPE_CHECKING:
    from ..watching.observe.recorder import EventRecorder
    from ..watching.record import WatchRecord


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
        self._finder = None if is_imported() else DynamoFinder(self._imported)

    def begin(self) -> None:
        """Watch from now on, or from when Dynamo is imported."""
        self._running = True
        if is_imported():
            self._open()

    def end(self) -> WatchRecord | None:
        """What was seen since `begin`; None where Dynamo has not been imported yet."""
        self._running = False
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return None
        from ..watching.observe.hub import HUB
        from ..watching.record import record_of

        HUB.close(recorder)
        if recorder.events and self._keeper is not None:
            HUB.close(self._keeper)
            self._keeper = None
        if recorder.broken is not None:
            self.broken = self.broken or recorder.broken
            return None
        return record_of(recorder)

    def close(self) -> None:
        """Leave nothing behind."""
        self.end()
        if self._keeper is not None:
            from ..watching.observe.hub import HUB

            HUB.close(self._keeper)
            self._keeper = None
        if self._finder is not None:
            self._finder.remove()

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
