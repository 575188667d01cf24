"""The recording of ops under a TorchDispatchMode, and the graphs built from the records.

`Replay` and `Section` work after the step, the others during it or at its end:

    run_noted          (`noted_run`) starts a recorder, and runs the step inside.
    RecordingMode      (`mode`) base of the recorders `DispatchRecorder`, `IslandRecorder` and
                       `RecordedGraph`. Their `__torch_dispatch__` makes an `OpRecord` of each op,
                       with a numbered `Value` for each tensor.
    ModuleCalls        (`module_calls`) the modules that are being called.
    tensors_inside     (`constants`) the tensors that `torch.tensor` copied into a constant.
    refuse_unseen      (`noted_run`) raises if code ran unrecorded.
    refuse_unwritten   (`section`) raises if a kernel may have written to a tensor unseen.
    Replay             (`replay`) turns each record into a `Draft`, a node without a name.
    Section            (`section`) builds a graph from the drafts with the same section number.
"""

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
    from .noted_run import refuse_unseen, run_noted
    from .replay import Draft, Replay
    from .section import Section, UnwrittenReads, computes_nothing, refuse_unwritten
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
            "noted_run": "refuse_unseen run_noted",
            "section": "Section UnwrittenReads computes_nothing refuse_unwritten",
        },
    )
