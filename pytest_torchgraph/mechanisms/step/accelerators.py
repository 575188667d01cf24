"""What torch keeps for each type of device: random generators, and whether autocast is on.

A backend is a module of torch's; all have functions of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_NAMED = ("cuda", "xpu", "mps", "mtia", "hpu", "xla", "ipu", "maia")


def _types() -> Iterator[str]:
    yield from _NAMED
    yield torch.device("privateuseone").type  # the name that a backend outside of torch gave itself


class DeviceGenerators:
    """The state of the generators of all devices in use. It starts no backend."""

    def __init__(self) -> None:
        modules: list[Any] = [getattr(torch, type_, None) for type_ in _types()]
        self.states = [(module, _states(module)) for module in modules if _in_use(module)]

    def restore(self) -> None:
        """Set the generators to this state."""
        for module, states in self.states:
            for index, state in enumerate(states):
                module.set_rng_state(state, index)


def _in_use(module: Any) -> bool:
    """Whether a backend has generators and was used or, if it does not say so, is there."""
    if not hasattr(module, "get_rng_state") or not hasattr(module, "set_rng_state"):
        return False
    if hasattr(module, "is_initialized"):
        return bool(module.is_initialized())
    forked = getattr(module, "_is_in_bad_fork", None)
    return bool(module.is_available()) and not (forked is not None and forked())


def _states(module: Any) -> list[torch.Tensor]:
    return [module.get_rng_state(index) for index in range(module.device_count())]


def autocast() -> dict[str, torch.dtype | None]:
    """The dtype that autocast casts to on each type of device, None where it is off."""
    return {
        type_: torch.get_autocast_dtype(type_) if torch.is_autocast_enabled(type_) else None
        for type_ in ("cpu", *_types())
        if torch.amp.is_autocast_available(type_)
    }
