"""Graphs captured by torch.compile: from Dynamo, AOTAutograd and inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .aot import Aot, AotRecorder, Dynamo
    from .inductor import Inductor, draw_by_seeds
    from .passes import NEEDED, PassRecorder, PassRun, named_runs
    from .run import Frame, switched_off, tell_whose, why_nothing
else:
    __getattr__ = front_door(
        __name__,
        {
            "aot": "Aot AotRecorder Dynamo",
            "inductor": "Inductor draw_by_seeds",
            "passes": "NEEDED PassRecorder PassRun named_runs",
            "run": "Frame switched_off tell_whose why_nothing",
        },
    )
