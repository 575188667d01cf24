"""Records what torch.compile does: events of the structured trace, runs of graphs, and calls.

While an `EventRecorder` is open, the observers (`observe`) pass it the events. Later, `record_of`
takes a `WatchRecord` from it, which reads the rest from the events on first access:

- `compilations` groups the events by compilation. The modules below read compilations.
- `breaks`: graph breaks. `recompiles`: recompilations, whose failed guards `guards` describes with
  `guard_text` (torch's text of a guard) and `guard_values` (the values that a guard checks).
- `cache_lookups`: hits, misses and bypasses of torch.compile's caches.
- `graphs`: the printed graphs, converted. `kernels` and `output_code`: inductor's code.

`trace_log` makes the same record from a log of `TORCH_TRACE`, which `log_records` splits, and
`printed_logs` finds graphs in other texts. `dynamo_import` delays observers until Dynamo is
imported.
"""

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
