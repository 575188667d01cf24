"""The events of a watch as compilations, in the order in which they began."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..convert.source_lines import original_name
from .observe.events import (
    ONLY_TRACED,
    CacheMissEvent,
    CompileId,
    CudagraphsSkipped,
    Event,
    Finished,
    Generated,
    GraphBreakEvent,
    GuardsFailed,
    Printed,
    Started,
)

LIMIT = "recompile limit"


@dataclass
class Compilation:
    """One compilation of one frame, or one capture by compiled autograd.

    Attributes:
        id: its compile id, None for AOTAutograd used without Dynamo.
        function: name of the function; of the original one for what continues behind a break.
        file, line: where the code that was compiled begins.
        region: name of the compiled callable in whose call this happened.
        printed: the graphs, as text, of the last attempt.
        code: what inductor generated, a text for each graph.
        breaks: the graph breaks of all attempts.
        guards: the guards that had failed before, so that this is a recompilation.
        missed: why compiled autograd had nothing that fits.
        failure, reason: the exception that ended it; "" where none did.
        failed_at: file and line at which it was raised, where they are known.
        cudagraphs: why graphs of it got no CUDA graph, as far as torch says.
    """

    id: CompileId | None
    function: str = ""
    file: str = ""
    line: int = 0
    region: str = ""
    printed: list[Printed] = field(default_factory=list)
    code: list[Generated] = field(default_factory=list)
    breaks: list[GraphBreakEvent] = field(default_factory=list)
    guards: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    failure: str = ""
    reason: str = ""
    failed_at: tuple[str, int] = ("", 0)
    cudagraphs: list[str] = field(default_factory=list)
    started: bool = False
    finished: bool = False

    @property
    def limit_hit(self) -> bool:
        """Whether Dynamo refused, because it had compiled this code too often."""
        return bool(self.failure) and LIMIT in self.reason

    @property
    def is_capture(self) -> bool:
        """Whether this is a capture by compiled autograd, not the compilation of a frame."""
        return self.id is not None and self.id.frame is None

    @property
    def is_recompilation(self) -> bool:
        """Whether the same code, or the backward, had been compiled before."""
        if self.id is None:
            return False
        if self.is_capture:
            return bool(self.id.autograd)
        return bool(self.id.compile) or bool(self.guards)

    @property
    def files(self) -> frozenset[str]:
        """The files of the functions that were compiled: its own, and those that it calls."""
        return frozenset({self.file}).union(*(each.files for each in self.printed))

    def texts(self, stage: str) -> list[str]:
        """The graphs of a stage."""
        return [each.text for each in self.printed if each.stage == stage]


def compilations(events: Iterable[Event]) -> list[Compilation]:
    """The compilations that these events are of."""
    found: list[Compilation] = []
    latest: dict[CompileId | None, Compilation] = {}
    for event in events:
        current = latest.get(event.id)
        if current is None or _begins(event, current):
            current = latest[event.id] = Compilation(event.id)
            found.append(current)
        _add(current, event)
    return found


def _begins(event: Event, current: Compilation) -> bool:
    """Whether an event is of another compilation with the same id: Dynamo was reset between."""
    if isinstance(event, Started):
        return current.started
    if isinstance(event, GuardsFailed):
        return current.started or bool(current.guards)
    if isinstance(event, CacheMissEvent):
        return bool(current.printed)
    if isinstance(event, Printed) and event.stage == "compiled_autograd":
        return bool(current.texts("compiled_autograd"))
    return False


def _add(current: Compilation, event: Event) -> None:
    match event:
        case Started():
            current.started = True
            current.region = event.region
            current.function, current.line = original_name(event.function), event.line
        case Printed():
            if not current.finished:
                same = [each for each in current.printed if each.attempt == event.attempt]
                current.printed = same
            current.printed.append(event)
        case Generated():
            current.code.append(event)
        case GraphBreakEvent():
            current.breaks.append(event)
        case GuardsFailed():
            current.guards = event.reasons
        case CacheMissEvent():
            current.missed = event.reasons
        case Finished():
            current.finished = True
            current.function = original_name(event.function) or current.function
            current.file = event.file or current.file
            current.line = event.line or current.line
            if ONLY_TRACED not in event.reason:
                current.failure, current.reason = event.failure, event.reason
            current.failed_at = event.failed_file, event.failed_line
            current.cudagraphs += [event.cudagraphs] if event.cudagraphs else []
        case CudagraphsSkipped():
            current.cudagraphs.append(event.reason)
