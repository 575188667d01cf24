"""Failed guards: torch's report of them, and the details that it omits.

checks  what a guard checks: the subject, its old value, the words for it
read    torch's text of a guard, parsed; reads of variables that run no code of the user's
look    details observed while torch reports why it recompiles; values as messages show them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .checks import mask_run_details as mask_run_details
    from .checks import simplify_guard as simplify_guard
    from .checks import sizes_in as sizes_in
    from .look import GuardObservation as GuardObservation
    from .look import observe_guard as observe_guard
    from .read import IN_TORCH as IN_TORCH
    from .read import GuardLine as GuardLine
else:
    __getattr__ = front_door(
        __name__,
        {
            "checks": "mask_run_details simplify_guard sizes_in",
            "look": "GuardObservation observe_guard",
            "read": "GuardLine IN_TORCH",
        },
    )
