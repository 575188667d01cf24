"""The recording of ops under a TorchDispatchMode, and the graphs built from the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .mode import (
        FIRST_LEAF_SEQUENCE,
        HANDS_OVER,
        LIFT,
        OpRecord,
        RecordingMode,
        Value,
        collector_paused,
        parts_of,
    )
    from .module_calls import ModuleCalls
    from .replay import Draft, Replay
    from .section import Section, UnwrittenReads, computes_nothing, refuse_unwritten
    from .run import refuse_unseen, run_noted
else:
    __getattr__ = front_door(
        __name__,
        {
            "mode": (
                "FIRST_LEAF_SEQUENCE HANDS_OVER LIFT OpRecord RecordingMode Value collector_paused "
                "parts_of"
            ),
            "module_calls": "ModuleCalls",
            "replay": "Draft Replay",
            "section": "Section UnwrittenReads computes_nothing refuse_unwritten",
            "run": "refuse_unseen run_noted",
        },
    )
