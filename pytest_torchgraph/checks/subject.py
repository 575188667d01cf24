"""What checks read: a capture, and runs of the step for comparison.

Rooms above, and `mechanisms`, implement these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..graph.divergence import Divergence

if TYPE_CHECKING:
    import torch

    from ..graph.blocks import BlockKind
    from ..graph.events import EagerOp, Frozen, GraphBreak, UpdatedParameter
    from ..graph.model import Graph
    from ..syncs.model import Sync, Transfer
    from ..watching.cache_lookups import CacheBypass
    from ..watching.kernels import Kernel
    from ..watching.record import WatchRecord


class StepResult(Protocol):
    """The results of one step."""

    @property
    def outputs(self) -> Mapping[str, torch.Tensor]:
        """Tensors of the output, by path."""

    @property
    def others(self) -> Mapping[str, Any]:
        """Leaves of the output that are not tensors, by path."""

    @property
    def containers(self) -> Mapping[str, type]:
        """Types of lists, dicts and other containers of the output, by path."""

    @property
    def requires_grad(self) -> frozenset[str]:
        """Paths of the tensors that require grad."""

    @property
    def strides(self) -> Mapping[str, tuple[int, ...]]:
        """Strides of the dense tensors of the output, by path."""

    @property
    def sharing(self) -> Mapping[str, tuple[str, str]]:
        """First output that is the same object, and first owner of the storage, by path."""

    @property
    def grads(self) -> Mapping[str, torch.Tensor]:
        """Gradients, by name."""

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """Final values of buffers and tensor arguments, by label."""

    @property
    def numpy(self) -> Any:
        """Final state of numpy's global generator."""


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


class PythonValues(Protocol):
    """A snapshot of the target's Python values."""

    def changes(self) -> Sequence[PythonChange]:
        """Return the values that have changed since the snapshot."""


class Generators(Protocol):
    """A snapshot of all random number generators."""

    def restore(self) -> None:
        """Set the generators to the state of the snapshot."""


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


class RunOfPass(Protocol):
    """A run of a graph pass in inductor; see `PassRun`."""

    @property
    def name(self) -> str:
        """Name of the pass."""

    @property
    def parent(self) -> str:
        """Name of the pass that ran this one, or ""."""

    @property
    def changed(self) -> bool:
        """True if the pass changed the graph."""

    @property
    def matches(self) -> int | None:
        """Number of replaced matches, or `None`."""


class Subject:
    """A capture as checks read it. `Capture` implements the members, see there."""

    if TYPE_CHECKING:
        via: str
        device: str | None

        @property
        def watched(self) -> WatchRecord | None:
            """Record of a watch, or `None`."""

        def record(self, asked: str) -> WatchRecord:
            """Return the compiler's record. `asked` is the requested information, for messages."""

        @property
        def graphs(self) -> tuple[Graph, ...]:
            """Graphs at the capture's level."""

        @property
        def program(self) -> tuple[Graph, ...]:
            """All graphs of the step, compiled and eager."""

        @property
        def forwards(self) -> tuple[Graph, ...]:
            """Forward and inference graphs."""

        @property
        def backwards(self) -> tuple[Graph, ...]:
            """Backward graphs."""

        def phase(self, name: str) -> tuple[Graph, ...]:
            """Return the graphs of a phase."""

        @property
        def eager(self) -> tuple[Graph, ...]:
            """Graphs of eager ops."""

        @property
        def eager_ops(self) -> Sequence[EagerOp]:
            """Eager ops in program order."""

        @property
        def kernels(self) -> tuple[Kernel, ...]:
            """Kernels and library calls."""

        @property
        def passes(self) -> Sequence[RunOfPass]:
            """Passes that inductor ran."""

        @property
        def counters(self) -> Mapping[str, Mapping[str, int]]:
            """Change of Dynamo's counters."""

        @property
        def breaks(self) -> tuple[GraphBreak, ...]:
            """Graph breaks."""

        @property
        def executions(self) -> Mapping[str, int]:
            """Run count per compiled graph."""

        @property
        def cache_bypasses(self) -> tuple[CacheBypass, ...]:
            """Reasons why graphs cannot be cached."""

        @property
        def transfers(self) -> tuple[Transfer, ...]:
            """Copies between devices."""

        @property
        def frozen(self) -> tuple[Frozen, ...]:
            """Numbers frozen into compiled graphs."""

        @property
        def _training(self) -> Sequence[UpdatedParameter]:
            """What a training step did to its parameters."""

        @property
        def _ran_eagerly(self) -> bool:
            """True if code that the user compiled ran eagerly."""

        def _syncs_in(self, phase: str | None) -> tuple[Sync, ...]:
            """Return the syncs of a phase; of the whole step for `None`."""

        def repeated(self, glob: str) -> tuple[BlockKind, ...]:
            """Return the kinds of blocks of the forward."""
