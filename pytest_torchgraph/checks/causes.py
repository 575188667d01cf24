"""Causes of a difference from the eager run that can be proven by running eagerly again.

Nothing is compiled for them, and nothing of it runs unless a comparison fails.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .. import torch_private
from .line_tracer import LineTracer
from .op_probe import OpProbe
from .rounding import Unequal
from .subject import EagerComparison, PythonChange, StepResult

_MOST = 6
"""How many changed Python values are tried one by one."""


class Differ(Protocol):
    """Compares two outcomes, bit by bit or within the tolerance of the check."""

    def __call__(
        self, eager: StepResult, other: StepResult, *, exact: bool = True
    ) -> Unequal | None:
        """Return the first difference, None if there is none."""
        ...


@dataclass(frozen=True)
class Causes:
    """The causes of a difference.

    Attributes:
        lines: what a message says of them.
        may_be_rounding: True if there is none, and code was compiled.
    """

    lines: Sequence[str]
    may_be_rounding: bool


def causes_of(
    comparison: EagerComparison,
    expected: StepResult,
    outcome: StepResult,
    changed: Sequence[PythonChange],
    differ: Differ,
) -> Causes:
    """Look for what makes a captured run differ.

    Args:
        comparison: the two runs.
        expected: the outcome of the eager run.
        outcome: that of the captured run.
        changed: what changed in Python during the eager run.
        differ: compares outcomes.
    """
    own = differ(expected, comparison.eager())
    probe = OpProbe(comparison.generators, stateful=own is not None, fakes=comparison.traces)
    comparison.inside(lambda: probe)
    lines = list(probe.found)
    lines += _numpy(comparison, expected, outcome)
    if own is not None:
        lines += _unlike_itself(comparison, expected, own, changed, differ, bool(lines))
    elif not lines:
        lines += _changed_since(comparison, outcome, differ)
    return Causes(lines, not lines and comparison.compiles)


def _numpy(comparison: EagerComparison, expected: StepResult, outcome: StepResult) -> Iterator[str]:
    """np.random: Dynamo draws it from torch's generator, so that numpy's stays where it was."""
    if not comparison.compiles or expected.numpy == outcome.numpy:
        return
    if torch_private.get("config").use_numpy_random_stream:
        return
    import numpy as np

    def state() -> Any:
        return str(np.random.get_state(legacy=False))

    line = _lines(comparison, [state])[0]
    yield (
        f"np.random draws numbers{line}: torch.compile draws them from torch's generator, so "
        "compiled code has others. torch._dynamo.config.use_numpy_random_stream = True keeps "
        "numpy's (at a graph break)."
    )


def _unlike_itself(
    comparison: EagerComparison,
    expected: StepResult,
    own: Unequal,
    changed: Sequence[PythonChange],
    differ: Differ,
    explained: bool,
) -> Iterator[str]:
    """Two eager runs from one state that differ: Python values, if they are what does it."""
    by = ""
    if own.eager is not None and own.captured is not None and own.eager.is_floating_point():
        size = float((own.eager.double() - own.captured.double()).abs().max())
        by = f" by up to {size:.3g}"
    label = f"gradient of {own.name}" if own.what == "gradients" else own.name or "the output"
    yield (
        f"The eager run differs from itself: called again from the same state, {label} is another "
        f"one{by}."
    )

    def settles(some: Sequence[PythonChange]) -> bool:
        return differ(expected, _with_former(comparison, some)) is None

    proven = bool(changed) and settles(changed)
    if proven:
        needed = list(changed)
        for change in changed[:_MOST] if len(changed) > 1 else ():
            others = [other for other in needed if other is not change]
            if others and settles(others):
                needed = others
        changed = needed
    if changed and (proven or not explained):
        yield from _named(comparison, changed)
    elif not explained:
        yield (
            "Neither a Python value of the model nor a custom op was found that does it: look for "
            "something that keeps a state from call to call."
        )


def _changed_since(
    comparison: EagerComparison, outcome: StepResult, differ: Differ
) -> Iterator[str]:
    """Python values that are others than before the capture, if they make the difference."""
    changed = comparison.before.changes()
    if not changed:
        return
    tracer = LineTracer([change.mark for change in changed])
    again = _with_former(comparison, changed, tracer)
    if differ(again, outcome, exact=False) is None:
        yield "With the Python values from before the capture, the eager run agrees with it."
        yield from _named(comparison, changed, tracer)


def _with_former(
    comparison: EagerComparison, changed: Sequence[PythonChange], tracer: LineTracer | None = None
) -> StepResult:
    """Run eagerly with the values that there were before; those of now are put back."""
    now = [change.value() for change in changed]
    for change in changed:
        change.put(_copy(change.before))
    try:
        if tracer is None:
            return comparison.eager()
        return comparison.inside(tracer.tracing)
    finally:
        for change, value in zip(changed, now, strict=True):
            change.put(value)


def _copy(value: Any) -> Any:
    with contextlib.suppress(Exception):  # something in it that cannot be copied
        return copy.deepcopy(value) if not isinstance(value, torch.Tensor) else value
    return copy.copy(value)


def _named(
    comparison: EagerComparison, changed: Sequence[PythonChange], tracer: LineTracer | None = None
) -> Iterator[str]:
    """A line for each Python value that changed."""
    probes = [change.mark for change in changed]
    lines = (
        _lines(comparison, probes)
        if tracer is None
        else [tracer.line(n) for n in range(len(probes))]
    )
    for change, line in itertools.islice(zip(changed, lines, strict=True), _MOST):
        yield f"Python state: {change}{line}"


def _lines(comparison: EagerComparison, probes: Sequence[Callable[[], Any]]) -> list[str]:
    """Where the user's code changes each of these in an eager run, as a part of a sentence."""
    tracer = LineTracer(probes)
    comparison.inside(tracer.tracing)
    return [tracer.line(number) for number in range(len(probes))]
