"""What checks read: a capture, and runs of the step for comparison.

The types are those of rooms above. Only annotations name them, so nothing is imported from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ..graph.divergence import Divergence

if TYPE_CHECKING:
    from ..api.observed import Observed
    from ..mechanisms.step import Outcome, PythonState, RandomState

    Subject = Observed
else:
    # `Capture` inherits from the classes of assertions, and from `Observed` in a room above.
    Subject = object

StepResult: TypeAlias = "Outcome"
"""The results of one step."""
PythonValues: TypeAlias = "PythonState"
"""A snapshot of the target's Python values."""
Generators: TypeAlias = "RandomState"
"""A snapshot of all random number generators."""


class PythonChange(Protocol):
    """A changed Python value of the target; `str` describes the change."""

    def copy_before(self) -> Any:
        """Return a copy of the value before the change."""

    def mark(self) -> Any:
        """Return a value that changes when the current value does."""

    def value(self) -> Any:
        """Return the current value."""

    def put(self, value: Any) -> None:
        """Replace the current value."""


class EagerComparison(NamedTuple):
    """Two runs from the same state, executed on demand.

    Attributes:
        eager: runs the target eagerly, inside the context that a given function returns, if any.
        captured: returns the captured run, or an equivalent run that draws the same random numbers.
        in_float64: runs the target eagerly in float64, as the reference for rounding.
        backends: the backends of the target's compiled code, each with its name, and True if torch
            registers it under this name. Complete once `eager` was called.
        python: returns the target's Python values.
        before: the target's Python values before the capture.
        generators: returns the state of the random number generators.
        compiles: True if torch.compile made the captured run.
        traces: True if the run was traced with fake implementations of ops.
        search: finds the first difference of a captured run. Its arguments are the outcome of an
            eager run, a function that returns True if another outcome differs from it, and a time
            limit in seconds or `None`.
    """

    eager: Callable[..., StepResult]
    captured: Callable[[], StepResult]
    in_float64: Callable[[], StepResult]
    backends: Set[tuple[str, bool]]
    python: Callable[[], PythonValues]
    before: PythonValues
    generators: Callable[[], Generators]
    compiles: bool
    traces: bool
    search: Callable[[StepResult, Callable[[StepResult], bool], float | None], Divergence]


class CallsComparison(NamedTuple):
    """Calls that ran as the user compiled them, and that can run again eagerly.

    Attributes:
        captured: the results of the compiled calls.
        idle: numbers of the calls in which no compiled code ran.
        eager_calls: the reasons why compiled code ran eagerly.
        changes: the Python values that the calls changed, in words.
        backends: see `EagerComparison`.
        eager: runs the calls eagerly. Calls a function with the number and the result of each call,
            and ends once it returns True.
    """

    captured: Sequence[StepResult]
    idle: Sequence[int]
    eager_calls: Sequence[str]
    changes: Sequence[str]
    backends: Set[tuple[str, bool]]
    eager: Callable[[Callable[[int, StepResult], bool]], object]


Comparison = EagerComparison | CallsComparison | None
"""Eager runs for comparison: of one step, of several calls, or none."""
