"""Failed guards: torch's report of them, and details that are not in it.

descriptions  the check of a guard in words
read          a parser of torch's guards, and reads of variables without running user code
observation   the failed guard and its new value, observed while torch reports a recompile
advice        `FailedGuard`: a failed guard with its remedy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .advice import FailedGuard, details, failed_guard, fixed_at, made_at, reasons
    from .descriptions import sizes_in
    from .observation import GuardObservation, observe_guard
    from .read import IN_TORCH, GuardLine, user_function, without_scope
else:
    __getattr__ = front_door(
        __name__,
        {
            "advice": "FailedGuard details failed_guard fixed_at made_at reasons",
            "descriptions": "sizes_in",
            "observation": "GuardObservation observe_guard",
            "read": "GuardLine IN_TORCH user_function without_scope",
        },
    )
