"""Calls after a warm-up: what a step that is compiled already still compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..mechanisms.step.invocation import Invocation
from ..mechanisms.step.saved_state import preserve_state
from ..mechanisms.step.step import Step
from .result import Capture
from .watch import Watch


def steady(
    target: Callable[..., Any],
    /,
    *calls: Any,
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    backward: bool | None = None,
) -> Capture:
    """Call a target that is compiled, and watch all calls but the first, which warms it up.

    `steady(torch.compile(model), (x,), (x,)).assert_no_recompiles()` says that the second call
    compiles nothing. Nothing is reset, and the target runs as it is; after each call the RNG state,
    `.grad`, buffers and the tensors among the arguments are what they were.

    Args:
        target: what is called; what it or its parts compile is watched.
        *calls: the arguments of each call, at least two: a tuple of positional arguments, or a
            pair of such a tuple and a dict of keyword arguments.
        loss_fn, backward: of each call, as in `capture`.

    Returns:
        What the calls but the first compiled and ran, as `watch()` gives it.

    Raises:
        TypeError: if the target is not callable, for fewer than two calls, and for a call that is
            no tuple.
        CaptureError: as `capture`, for a backward that cannot be run.
    """
    if not callable(target):
        raise TypeError(f"the target must be callable, not {type(target).__name__}")
    if len(calls) < 2:
        raise TypeError(
            f"steady(target, *calls) needs a call that warms up and one that is watched, not "
            f"{len(calls)}"
        )
    invocations = [
        Invocation(target, *arguments_of(call, number), loss_fn, backward)
        for number, call in enumerate(calls)
    ]
    _run(invocations[0])
    with Watch(warmed_up=True) as capture:
        for invocation in invocations[1:]:
            _run(invocation)
    return capture


def _run(invocation: Invocation) -> None:
    with preserve_state(invocation.named) as saved:
        Step(invocation, saved).run()


def arguments_of(call: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments of a call as users write it."""
    if not isinstance(call, tuple):
        raise TypeError(
            f"call {number} is no tuple of arguments but {type(call).__name__}: write (x,) for one "
            "argument, or ((x,), {'mask': mask})"
        )
    if len(call) == 2 and isinstance(call[0], tuple) and isinstance(call[1], dict):
        return call[0], call[1]
    return call, {}
