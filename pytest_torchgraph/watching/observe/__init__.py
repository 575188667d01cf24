"""The observers in torch: trace events, calls of compiled callables, runs of compiled graphs.

`hub` installs all observers while a recorder is open, and has a table of them. It passes each event
to the open recorders, after it added what only the live process shows:

- `structured_trace`: torch's records, parsed into events.
- `entries`: when calls of compiled callables begin and end, and what Dynamo does in between. It
  judges each call, with the reasons in `callables`.
- `executions`: how often each compiled graph ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .callables import (
        AOT_COMPILED,
        PRECOMPILED,
        CallKind,
        CompiledCallable,
        EagerCause,
        first_line,
    )
    from .executions import BACKWARD, CountedGraph, Counts
    from .hub import HUB, EventRecorder, IdleRecorder
    from .structured_trace import (
        HAND_OVER,
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
        name_of,
        read_event,
    )
else:
    __getattr__ = front_door(
        __name__,
        {
            "callables": "AOT_COMPILED CallKind CompiledCallable EagerCause PRECOMPILED first_line",
            "executions": "BACKWARD CountedGraph Counts",
            "hub": "EventRecorder HUB IdleRecorder",
            "structured_trace": (
                "CacheEvent CacheMissEvent CodeGenerated CompilationFinished "
                "CompilationStarted CompileId CudagraphsSkipped Event FixedSizes GraphBreakEvent "
                "GraphPrinted GuardsFailed HAND_OVER ONLY_TRACED SizeFixed is_recompile_limit "
                "name_of read_event"
            ),
        },
    )
