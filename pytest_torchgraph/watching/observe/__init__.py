"""The observers in torch: trace events, calls of compiled callables, runs of compiled graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .callables import AOT_COMPILED as AOT_COMPILED
    from .callables import PRECOMPILED as PRECOMPILED
    from .callables import CallKind as CallKind
    from .callables import CompiledCallable as CompiledCallable
    from .callables import EagerCause as EagerCause
    from .callables import first_line as first_line
    from .executions import BACKWARD as BACKWARD
    from .executions import CountedGraph as CountedGraph
    from .executions import Counts as Counts
    from .hub import HUB as HUB
    from .hub import EventRecorder as EventRecorder
    from .hub import IdleRecorder as IdleRecorder
    from .structured_trace import ONLY_TRACED as ONLY_TRACED
    from .structured_trace import REPEATED as REPEATED
    from .structured_trace import CacheEvent as CacheEvent
    from .structured_trace import CacheMissEvent as CacheMissEvent
    from .structured_trace import CodeGenerated as CodeGenerated
    from .structured_trace import CompilationFinished as CompilationFinished
    from .structured_trace import CompilationStarted as CompilationStarted
    from .structured_trace import CompileId as CompileId
    from .structured_trace import CudagraphsSkipped as CudagraphsSkipped
    from .structured_trace import Event as Event
    from .structured_trace import FixedSizes as FixedSizes
    from .structured_trace import GraphBreakEvent as GraphBreakEvent
    from .structured_trace import GraphPrinted as GraphPrinted
    from .structured_trace import GuardsFailed as GuardsFailed
    from .structured_trace import SizeFixed as SizeFixed
    from .structured_trace import is_recompile_limit as is_recompile_limit
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
                "GraphPrinted GuardsFailed ONLY_TRACED REPEATED SizeFixed is_recompile_limit"
            ),
        },
    )
