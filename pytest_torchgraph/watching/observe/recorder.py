"""What one watch saw."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from .entries import Snapshot
from .events import Event
from .executions import Counts

Counters = dict[str, Counter[Any]]
"""As in torch: a group in which nothing was counted is empty, not missing."""


@dataclass(frozen=True)
class State:
    """What is counted since the observers were installed, at one moment."""

    executed: Counts = field(default_factory=Counter)
    counters: Counters = field(default_factory=dict)
    regions: Snapshot = field(default_factory=dict)


class EventRecorder:
    """The events, entries and runs while it is open. It can be opened several times.

    Attributes:
        events: what the compiler did, in order.
        disabled: what kept the whole process from compiling meanwhile, "" for nothing.
        opened: whether it ever was open.
        broken: what went wrong in here while it recorded: nothing can be said then.
        passive: whether a capture may be made while it is open, which it then does not see.
    """

    def __init__(self, *, passive: bool = False) -> None:
        self.passive = passive
        self.opened = False
        self.events: list[Event] = []
        self.broken: Exception | None = None
        self.disabled = ""
        self._depth = 0
        self._before = State()
        self._executed: Counts = Counter()
        self._counted: Counters = {}
        self._regions: Snapshot = {}

    @property
    def is_open(self) -> bool:
        """Whether it records at the moment."""
        return self._depth > 0

    def open(self, now: State) -> bool:
        """Begin. False where it is open already."""
        self._depth += 1
        self.opened = True
        if self._depth == 1:
            self._before = now
        return self._depth == 1

    def close(self, now: State) -> bool:
        """End. False while it stays open, because it was opened more than once."""
        self._depth -= 1
        if self._depth == 0:
            self._executed = self.executed(now)
            self._counted = self.counted(now)
            self._regions = self.regions(now)
            self._before = State()
        return self._depth == 0

    def executed(self, now: State | None) -> Counts:
        """How often each graph ran while this was open.

        Args:
            now: the state at this moment, None where it is closed.
        """
        total = Counter(self._executed)
        if now is not None:
            total += now.executed - self._before.executed
        return total

    def counted(self, now: State | None) -> Counters:
        """The change of Dynamo's counters while this was open; see `executed`."""
        total: Counters = defaultdict(Counter)
        for group, values in self._counted.items():
            total[group] = Counter(values)
        if now is not None:
            for group, values in now.counters.items():
                before = self._before.counters.get(group, Counter())
                changed = Counter({key: n - before[key] for key, n in values.items()})
                for key, count in changed.items():
                    if count:
                        total[group][key] += count
        return total

    def regions(self, now: State | None) -> Snapshot:
        """The compiled callables that were called while this was open; see `executed`."""
        total = dict(self._regions)
        if now is not None:
            for key, region in now.regions.items():
                added = region.since(self._before.regions.get(key))
                if added.entries:
                    total[len(total)] = added
        return total
