"""Records what torch.compile does: events of the structured trace, runs of graphs, and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .kernels import Kernel, Origin, kernels_of
    from .observe import HUB, EventRecorder
    from .record import record_of
else:
    __getattr__ = front_door(
        __name__,
        {
            "kernels": "Kernel Origin kernels_of",
            "observe": "EventRecorder HUB",
            "record": "record_of",
        },
    )
