"""Eager islands: the graphs of the ops that run eagerly between compiled graphs."""

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
