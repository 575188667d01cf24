"""The recording of ops under a TorchDispatchMode, and the graphs built from the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .mode import FIRST_LEAF_SEQUENCE as FIRST_LEAF_SEQUENCE
    from .mode import HANDS_OVER as HANDS_OVER
    from .mode import LIFT as LIFT
    from .mode import OpRecord as OpRecord
    from .mode import RecordingMode as RecordingMode
    from .mode import Value as Value
    from .mode import collector_paused as collector_paused
    from .mode import line_of_target as line_of_target
    from .mode import parts_of as parts_of
    from .replay import Draft as Draft
    from .replay import Replay as Replay
    from .section import Section as Section
    from .section import UnwrittenReads as UnwrittenReads
    from .section import refuse_unwritten as refuse_unwritten
    from .unseen import precompiled_noted as precompiled_noted
    from .unseen import refuse_unseen as refuse_unseen
    from .unseen import threads_started as threads_started
else:
    __getattr__ = front_door(
        __name__,
        {
            "mode": (
                "FIRST_LEAF_SEQUENCE HANDS_OVER LIFT OpRecord RecordingMode Value collector_paused "
                "line_of_target parts_of"
            ),
            "replay": "Draft Replay",
            "section": "Section UnwrittenReads refuse_unwritten",
            "unseen": "precompiled_noted refuse_unseen threads_started",
        },
    )
