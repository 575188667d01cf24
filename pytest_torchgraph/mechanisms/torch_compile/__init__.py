"""Graphs captured by torch.compile: from Dynamo, AOTAutograd and inductor.

`Dynamo`, `Aot` and `Inductor` each have a subclass of `Backend` (`run`). `Backend.run` compiles the
target with this backend and runs the step; Dynamo then calls the backend, which calls `compile` of
the subclass, once for each graph of Dynamo's. A `Frame` converts this graph and those lowered from
it. `Backend.captured` returns the result. `islands` records what runs eagerly meanwhile.
"""

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
