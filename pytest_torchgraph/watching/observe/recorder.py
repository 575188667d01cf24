"""What one watch records: events, calls of compiled callables, runs of graphs, counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from ...convert.process_groups import mesh_dimensions
from .callables import CallableTable
from .events import CacheEvent, CodeGenerated, Event, GraphPrinted
from .executions import Counts

Counters = dict[str, Counter[Any]]
"""`torch._dynamo.utils.counters`. As there, a group in which nothing was counted is empty."""


@dataclass(frozen=True)
class State:
    """All counts at one moment, since the observers were installed.

    Attributes:
        executed: how often each compiled graph ran.
        counters: Dynamo's counters.
        callables: the compiled callables that were called.
    """

    executed: Counts = field(default_factory=Counter)
    counters: Counters = field(default_factory=dict)
    callables: CallableTable = field(default_factory=dict)


class EventRecorder:
    """Records what happens while it is open. It can be opened again, also while it is open.

    Attributes:
        events: the records of torch's trace, in order.
        disabled: the setting that switched `torch.compile` off meanwhile, "" for none.
        opened: whether it ever was open.
        was_paused: whether a capture was made while it was open.
        broken: an error of ours while it recorded, None for none; after one, nothing is certain.
        mesh_dimensions: what process groups are for, by torch's names of them: of all that there
            were when a graph was printed. They may be gone when it is read.
        passive: whether a capture may be made while it is open, which it then does not record.
        with_graphs: whether it records the graphs and the code that torch prints, which takes
            torch more time than all other records.
    """

    def __init__(self, *, passive: bool = False, with_graphs: bool = True) -> None:
        self.passive = passive
        self.with_graphs = with_graphs
        self.opened = False
        self.was_paused = False
        self.events: list[Event] = []
        self.mesh_dimensions: dict[str, str] = {}
        self.broken: Exception | None = None
        self.disabled = ""
        self._depth = 0
        self._before = State()
        self._executed: Counts = Counter()
        self._counted: Counters = {}
        self._callables: CallableTable = {}

    @property
    def is_open(self) -> bool:
        """Whether it is recording."""
        return self._depth > 0

    @property
    def saw_nothing(self) -> bool:
        """Whether nothing was compiled, called or run until it was closed."""
        return not (self.events or self._executed or self._callables)

    def add(self, event: Event) -> None:
        """Record an event."""
        if self.with_graphs or not isinstance(event, GraphPrinted | CodeGenerated):
            if isinstance(event, CacheEvent) and not self.with_graphs:
                event = replace(event, components=())  # 60 kB
            self.events.append(event)
        if self.with_graphs and isinstance(event, GraphPrinted):
            self.mesh_dimensions.update(mesh_dimensions())

    def open(self, now: State) -> bool:
        """Begin to record; False where it was open already."""
        self._depth += 1
        self.opened = True
        if self._depth == 1:
            self._before = now
        return self._depth == 1

    def close(self, now: State) -> bool:
        """End recording; False where it stays open, because it was opened more than once."""
        self._depth -= 1
        if self._depth == 0:
            self._executed = self.executed(now)
            self._counted = self.counted(now)
            self._callables = self.callables(now)
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
                changes = {key: n - before[key] for key, n in values.items() if n != before[key]}
                if changes:  # else an empty group would come into being
                    total[group].update(changes)
        return total

    def callables(self, now: State | None) -> CallableTable:
        """The compiled callables that were called while this was open; see `executed`."""
        total = dict(self._callables)
        if now is not None:
            for key, callee in now.callables.items():
                added = callee.since(self._before.callables.get(key))
                if added.entries:
                    total[len(total)] = added
        return total


class IdleRecorder(EventRecorder):
    """Records nothing, and keeps the observers installed for others that come and go."""

    def __init__(self) -> None:
        super().__init__(passive=True, with_graphs=False)

    def add(self, event: Event) -> None:
        """Drop the event."""

    def executed(self, now: State | None) -> Counts:
        """Nothing."""
        return Counter()

    def callables(self, now: State | None) -> CallableTable:
        """Nothing."""
        return {}
