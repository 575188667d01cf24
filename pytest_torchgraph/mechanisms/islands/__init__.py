"""Eager islands: the graphs of the ops that run eagerly between compiled graphs.

A capture via torch.compile calls these, in this order:

    run_recorded            (`capture`) runs the step under an `IslandRecorder`, by `run_noted` of
                            `recording`, and refuses a step with unrecorded code. Called by
                            `Backend.run` of `torch_compile`.
    CompiledGraph.recorded  (`capture`) called by the backend for each graph that it compiles: wraps
                            the graph, so that each of its runs becomes an event of the recorder.
    IslandRecorder          (`island_recorder`) the dispatch mode. Its `events` are the eager ops
                            and the runs of compiled graphs, in program order. `Frames` (`frames`)
                            finds the module and the line of each op.
    recorded_islands        (`capture`) called by `Backend.captured` after the step. Returns a
                            function, because `islands_of` takes as long as the recording.
    islands_of              (`islands`) replays the events as drafts of nodes, and builds one graph
                            for the consecutive eager ops between two compiled runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .capture import CompiledGraph, recorded_islands, run_instead, run_recorded
    from .island_recorder import IslandRecorder
    from .islands import Islands
else:
    __getattr__ = front_door(
        __name__,
        {
            "capture": "CompiledGraph recorded_islands run_instead run_recorded",
            "island_recorder": "IslandRecorder",
            "islands": "Islands",
        },
    )
