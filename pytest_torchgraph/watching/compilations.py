"""Events of the trace, grouped by compilation."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType

from ..convert.source_lines import original_name
from .guards import GuardObservation
from .observe import (
    ONLY_TRACED,
    CacheEvent,
    CacheMissEvent,
    CodeGenerated,
    CompilationFinished,
    CompilationStarted,
    CompileId,
    CudagraphsSkipped,
    Event,
    FixedSizes,
    GraphBreakEvent,
    GraphPrinted,
    GuardsFailed,
    SizeFixed,
    is_recompile_limit,
)


@dataclass
class Compilation:
    """One compilation of one frame, or one capture by compiled autograd.

    Attributes:
        id: compile id, `None` for AOTAutograd used without Dynamo.
        function: name of the function; for code that resumes after a graph break, of the original
            function.
        file, line: start of the compiled code.
        callable_name: name of the compiled callable that was called, "" if unknown.
        printed: graphs printed by the last attempt.
        code: code that inductor generated, one entry per graph.
        breaks: graph breaks of all attempts.
        failed_guards: guards whose failure made this a recompilation.
        observations: details of each failed guard.
        fixed: dynamic sizes and ints of which the code required a number, by Dynamo's source.
        fixed_before: the same of earlier compilations, by compile id.
        cache_misses: reasons why compiled autograd could not reuse a backward in its cache.
        failure, reason: the exception that ended the compilation; "" if it succeeded.
        failed_at: file and line that raised the exception, if known.
        cudagraphs: reasons why graphs of the compilation have no CUDA graph, if torch reports any.
        lookups: lookups in torch.compile's caches.
        code_ref, own_resets: see `CompilationStarted`.
        started: True once Dynamo began to trace the frame.
        finished: True once the compilation ended.
        ops: number of ops in Dynamo's graph, 0 without a graph.
        seconds: duration, including the backend.
        lowered, cache_off: see `CompilationFinished`.
    """

    id: CompileId | None
    function: str = ""
    file: str = ""
    line: int = 0
    callable_name: str = ""
    printed: list[GraphPrinted] = field(default_factory=list)
    code: list[CodeGenerated] = field(default_factory=list)
    breaks: list[GraphBreakEvent] = field(default_factory=list)
    failed_guards: tuple[str, ...] = ()
    observations: tuple[GuardObservation, ...] = ()
    fixed: dict[str, SizeFixed] = field(default_factory=dict)
    fixed_before: FixedSizes = field(default_factory=dict)
    cache_misses: tuple[str, ...] = ()
    failure: str = ""
    reason: str = ""
    failed_at: tuple[str, int] = ("", 0)
    cudagraphs: list[str] = field(default_factory=list)
    lookups: list[CacheEvent] = field(default_factory=list)
    code_ref: weakref.ref[CodeType] | None = None
    own_resets: int = 0
    started: bool = False
    finished: bool = False
    ops: int = 0
    seconds: float = 0.0
    lowered: bool = False
    cache_off: str = ""

    @property
    def limit_hit(self) -> bool:
        """True if Dynamo refused to compile the code again, because of the recompile limit."""
        return is_recompile_limit(self.failure, self.reason)

    @property
    def is_capture(self) -> bool:
        """True for a capture by compiled autograd, False for the compilation of a frame."""
        return self.id is not None and self.id.frame is None

    @property
    def is_recompilation(self) -> bool:
        """True if the same code, or the backward, had been compiled before."""
        if self.id is None:
            return False
        if self.is_capture:
            return bool(self.id.autograd)
        return bool(self.id.compile) or bool(self.failed_guards)

    @property
    def files(self) -> frozenset[str]:
        """Files of the frame and of the functions that were traced into its graph."""
        return frozenset({self.file}).union(*(graph.files for graph in self.printed))

    def texts(self, stage: str) -> list[str]:
        """Return the printed graphs of a stage, see `GraphPrinted.stage`."""
        return [graph.text for graph in self.printed if graph.stage == stage]


def compilations(events: Iterable[Event]) -> list[Compilation]:
    """Group events into compilations, ordered by start."""
    result: list[Compilation] = []
    # After a reset of Dynamo, ids are used again: the latest compilation with each id.
    latest: dict[CompileId | None, Compilation] = {}
    for event in events:
        current = latest.get(event.id)
        if current is None or _begins(event, current):
            current = latest[event.id] = Compilation(event.id)
            result.append(current)
        _add_event(current, event)
    return result


def _begins(event: Event, current: Compilation) -> bool:
    """Return True if an event begins a new compilation under a used id, after a Dynamo reset.

    It does if the current compilation already has an event of its type. Guards fail, and compiled
    autograd misses, before a compilation starts.
    """
    if isinstance(event, CompilationStarted):
        return current.started
    if event.id is None and (current.finished or isinstance(event, CompilationFinished)):
        return True  # the skipped frame of a generator, or graphs after it
    if isinstance(event, GuardsFailed):
        return current.started or bool(current.failed_guards)
    if isinstance(event, CacheMissEvent):
        return bool(current.printed)
    if isinstance(event, GraphPrinted) and event.stage == "compiled_autograd":
        return bool(current.texts("compiled_autograd"))
    return False


def _add_event(current: Compilation, event: Event) -> None:
    """Add what an event says to its compilation, in place."""
    match event:
        case CompilationStarted():
            current.started = True
            current.callable_name = event.callable_name
            current.code_ref, current.own_resets = event.code_ref, event.own_resets
            current.function, current.line = original_name(event.function), event.line
            current.file = event.file or current.file
        case GraphPrinted():
            if not current.finished:
                # Dynamo restarted, so graphs of earlier attempts do not count.
                current.printed = [g for g in current.printed if g.attempt == event.attempt]
            current.printed.append(event)
        case CodeGenerated():
            current.code.append(event)
        case GraphBreakEvent():
            current.breaks.append(event)
        case GuardsFailed():
            current.failed_guards, current.observations = event.reasons, event.observations
            current.fixed_before = event.fixed
        case SizeFixed():
            current.fixed.update(dict.fromkeys(event.sources, event))
        case CacheMissEvent():
            current.cache_misses = event.reasons
        case CompilationFinished():
            current.finished = True
            current.function = original_name(event.function) or current.function
            current.file = event.file or current.file
            current.line = event.line or current.line
            # We had Dynamo trace a captured backward, which an exception of ours ends.
            if ONLY_TRACED not in event.reason:
                current.failure, current.reason = event.failure, event.reason
            current.failed_at = event.failed_file, event.failed_line
            current.cudagraphs += [event.cudagraphs] if event.cudagraphs else []
            current.ops, current.seconds = event.ops, event.seconds
            current.lowered, current.cache_off = event.lowered, event.cache_off
        case CacheEvent():
            current.lookups.append(event)
        case CudagraphsSkipped():
            current.cudagraphs.append(event.reason)
