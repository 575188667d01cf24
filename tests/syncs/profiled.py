"""Ops that read a value back inside their kernel, as the profiler sees them on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero"}

Reads = list[tuple[str, bool]]
"""Each dispatched op, with True if its kernel read a value back."""


class _Labels(TorchDispatchMode):
    """Labels each dispatched op in the profile with its number."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.ops.append(str(func))
        with torch.profiler.record_function(f"op {len(self.ops) - 1}"):
            return func(*args, **(kwargs or {}))


def reads_of(functions: Sequence[Callable[[], object]]) -> list[Reads]:
    """Run functions in one profile, and return the ops of each."""
    labels = _Labels()
    starts = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for function in functions:
            starts.append(len(labels.ops))
            with labels:
                function()
    reading = set()
    for event in profile.events():
        if event.name in READS:
            while event is not None and not event.name.startswith("op "):
                event = event.cpu_parent
            if event is not None:
                reading.add(int(event.name[3:]))
    ops = [(op, number in reading) for number, op in enumerate(labels.ops)]
    return [ops[start:end] for start, end in itertools.pairwise([*starts, len(ops)])]
