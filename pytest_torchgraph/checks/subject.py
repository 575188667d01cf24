"""The protocol by which checks read a capture. `Capture`, which is above them, follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..graph.blocks import BlockKind
from ..graph.cost.recomputed import Recomputed
from ..graph.cost.step import Received
from ..graph.divergence import Divergence
from ..graph.events import EagerOp, GraphBreak
from ..graph.model import Graph
from ..syncs.model import Sync, Transfer
from ..watching.cache_lookups import CacheBypass
from ..watching.kernels import Kernel
from ..watching.record import WatchRecord

if TYPE_CHECKING:
    import torch


class StepResult(Protocol):
    """The results of one step."""

    @property
    def outputs(self) -> Mapping[str, torch.Tensor]:
        """The tensors of its output, by path."""
        ...

    @property
    def others(self) -> Mapping[str, Any]:
        """The other leaves of its output, by path."""
        ...

    @property
    def containers(self) -> Mapping[str, type]:
        """The types of lists, dicts and other objects with leaves in them, by path."""
        ...

    @property
    def requires_grad(self) -> frozenset[str]:
        """The paths of the tensors that require grad."""
        ...

    @property
    def grads(self) -> Mapping[str, torch.Tensor]:
        """The gradients, by name."""
        ...

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """Buffers and tensor arguments at the end, by label."""
        ...

    @property
    def numpy(self) -> Any:
        """The state of numpy's global generator at the end."""
        ...


class PythonChange(Protocol):
    """A value that the target keeps in Python, and that changed; `str` says from what to what."""

    @property
    def before(self) -> Any:
        """The value that was there."""
        ...

    def mark(self) -> Any:
        """Return something that differs where the value that is there now does."""
        ...

    def value(self) -> Any:
        """Return the value that is there now."""
        ...

    def put(self, value: Any) -> None:
        """Put another value there."""
        ...


class PythonValues(Protocol):
    """What a target kept in Python at one moment."""

    def changes(self) -> Sequence[PythonChange]:
        """List the values that are others now."""
        ...


class Generators(Protocol):
    """The state of all random number generators at one moment."""

    def restore(self) -> None:
        """Set the generators to this state."""
        ...


class EagerComparison(NamedTuple):
    """Two runs from the same state, made when they are called for.

    Attributes:
        eager: the target by itself.
        captured: the captured run, or one like it that draws the same random numbers.
        in_float64: the target by itself in float64, which judges where the two differ.
        inside: the target by itself, inside a context that a function makes.
        python: gives what the target keeps in Python.
        before: what it kept there before the capture.
        generators: gives the state of the random number generators.
        compiles: True if torch.compile made what ran.
        traces: True if what ran was traced with the fake implementations of ops.
        search: finds where a captured run first differs. It takes the outcome of an eager run, what
            tells an outcome that differs from it, and the seconds; None for no limit.
    """

    eager: Callable[[], StepResult]
    captured: Callable[[], StepResult]
    in_float64: Callable[[], StepResult]
    inside: Callable[[Callable[[], AbstractContextManager[Any]]], StepResult]
    python: Callable[[], PythonValues]
    before: PythonValues
    generators: Callable[[], Generators]
    compiles: bool
    traces: bool
    search: Callable[[StepResult, Callable[[StepResult], bool], float | None], Divergence]


class Subject(Protocol):
    """A capture, as checks read it; what each of these is, `Capture` says."""

    @property
    def via(self) -> str:
        """The name of the mechanism."""
        ...

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs, at the capture's level."""
        ...

    @property
    def eager(self) -> tuple[Graph, ...]:
        """The graphs of what ran eagerly; a `CaptureError` where that was not recorded."""
        ...

    @property
    def eager_ops(self) -> Sequence[EagerOp]:
        """The ops that ran eagerly, in order; a `CaptureError` where they are not known."""
        ...

    @property
    def program(self) -> tuple[Graph, ...]:
        """All graphs of the step, compiled and eager."""
        ...

    @property
    def _received(self) -> Received:
        """Which inputs of compiled forward graphs other graphs of the step made."""
        ...

    @property
    def _split(self) -> tuple[Graph, ...]:
        """The graphs of the step as autograd or AOTAutograd made them."""
        ...

    @property
    def recomputed(self) -> tuple[Recomputed, ...]:
        """What the backward computes again."""
        ...

    def repeated(self, glob: str) -> tuple[BlockKind, ...]:
        """Return the kinds of blocks of the forward."""
        ...

    @property
    def forwards(self) -> tuple[Graph, ...]:
        """The forward and inference graphs."""
        ...

    @property
    def backwards(self) -> tuple[Graph, ...]:
        """The backward graphs."""
        ...

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels and library calls; a `CaptureError` where no code was generated."""
        ...

    @property
    def breaks(self) -> Sequence[GraphBreak]:
        """The graph breaks."""
        ...

    @property
    def cache_bypasses(self) -> Sequence[CacheBypass]:
        """The reasons for which graphs are compiled anew in every process."""
        ...

    @property
    def executions(self) -> Mapping[str, int]:
        """How often each compiled graph ran."""
        ...

    @property
    def syncs(self) -> Sequence[Sync]:
        """The places at which Python waits for the device."""
        ...

    @property
    def transfers(self) -> Sequence[Transfer]:
        """The copies between devices."""
        ...

    @property
    def device(self) -> str | None:
        """The type of the device that was asked for, None where none was."""
        ...

    @property
    def watched(self) -> WatchRecord | None:
        """The record of a watch; None where the graphs are of one step."""
        ...

    def need_all_ops(self, unknown: str) -> None:
        """Refuse a watch in which graphs broke; `unknown` says what is not known of it."""
        ...

    @property
    def _comparison(self) -> EagerComparison | None:
        """An eager run to compare with, None where there is none."""
        ...

    def record(self, asked: str) -> WatchRecord:
        """The record of the compiler; a `CaptureError` that names `asked` where there is none."""
        ...
