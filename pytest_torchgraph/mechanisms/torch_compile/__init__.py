"""Graphs captured by torch.compile: from Dynamo, AOTAutograd and inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .aot import Aot as Aot
    from .dynamo import Dynamo as Dynamo
    from .inductor import Inductor as Inductor
    from .inductor import draw_by_seeds as draw_by_seeds
    from .run import Frame as Frame
    from .run import run_compiled as run_compiled
    from .run import switched_off as switched_off
    from .run import tell_whose as tell_whose
else:
    __getattr__ = front_door(
        __name__,
        {
            "aot": "Aot",
            "dynamo": "Dynamo",
            "inductor": "Inductor draw_by_seeds",
            "run": "Frame run_compiled switched_off tell_whose",
        },
    )
