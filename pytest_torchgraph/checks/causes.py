"""Provable causes of a difference from the eager run.

After a failed comparison, the step runs eagerly again to find them. Nothing is compiled.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import torch
import torch.utils._pytree as pytree

from .. import torch_private
from ..convert import effects
from ..convert.source_lines import (
    Line,
    current_line,
    format_line,
    is_user_file,
    line_of,
    user_frames,
)
from ..graph.divergence import DivergenceKind
from ..ops.views import KNOWN_NAMESPACES
from .rounding import Unequal, largest_difference
from .subject import EagerComparison, Generators, PythonChange, StepResult

_MOST = 6
"""Maximum number of changed Python values that are tried separately."""
_NEGLIGIBLE = 1000
"""Changed values explain a difference that the original values make this many times smaller."""


class OutcomeComparer(Protocol):
    """A comparison of two outcomes, bitwise or within the tolerance of the check."""

    def __call__(
        self, eager: StepResult, other: StepResult, *, exact: bool = True, atol: float = 0
    ) -> Unequal | None:
        """Return the first difference, or `None`. `atol` applies if `exact`."""


@dataclass(frozen=True)
class Causes:
    """The causes of a difference.

    Attributes:
        lines: lines for the message.
        may_be_rounding: True if no cause was found and code was compiled.
        kind: kind of the first cause, as in `Divergence`; "" without a cause.
        op: custom op of the first cause, "" if the cause is not an op.
    """

    lines: Sequence[str]
    may_be_rounding: bool
    kind: DivergenceKind = ""
    op: str = ""


def causes_of(
    comparison: EagerComparison,
    expected: StepResult,
    outcome: StepResult,
    changed: Sequence[PythonChange],
    compare: OutcomeComparer,
) -> Causes:
    """Return the causes that make a captured run differ.

    A custom op with a defect, and numbers drawn by numpy, are named in any case. Python values are
    named if they explain the difference: that of two eager runs, if these differ too, else that of
    the capture.

    Args:
        comparison: the two runs.
        expected: outcome of the eager run.
        outcome: outcome of the captured run.
        changed: Python values that changed during the eager run.
        compare: returns the first difference of two outcomes.
    """
    eager_difference = compare(expected, comparison.eager())
    probe = OpProbe(
        comparison.generators, stateful=eager_difference is not None, fakes=comparison.traces
    )
    comparison.eager(lambda: probe)
    lines = list(probe.causes)
    lines += _detect_numpy_random(comparison, expected, outcome)
    # Without a cause of the probe, only `_detect_numpy_random` has added a line so far.
    kind, op = next(iter(probe.causes.values()), (("random" if lines else ""), ""))
    if eager_difference is not None:
        lines += _explain_nondeterminism(
            comparison, expected, eager_difference, changed, compare, bool(lines)
        )
    elif not lines:
        lines += _explain_changed_values(comparison, expected, outcome, compare)
    return Causes(lines, not lines and comparison.compiles, kind or ("state" if lines else ""), op)


def _detect_numpy_random(
    comparison: EagerComparison, expected: StepResult, outcome: StepResult
) -> Iterator[str]:
    """Yield a line if the target draws from np.random.

    Compiled code draws from torch's generator, so numpy's random state does not advance.
    """
    if not comparison.compiles or expected.numpy == outcome.numpy:
        return
    if torch_private.get("config").use_numpy_random_stream:
        return
    import numpy as np

    def state() -> Any:
        return str(np.random.get_state(legacy=False))

    yield (
        f"np.random draws different numbers in compiled code{_trace(comparison, [state]).line(0)}: "
        "torch.compile uses torch's generator instead. Set "
        "torch._dynamo.config.use_numpy_random_stream = True to keep numpy's generator, at the "
        "cost of a graph break."
    )


def _explain_nondeterminism(
    comparison: EagerComparison,
    expected: StepResult,
    eager_difference: Unequal,
    changed: Sequence[PythonChange],
    compare: OutcomeComparer,
    explained: bool,
) -> Iterator[str]:
    """Explain why two eager runs from the same state differ, with the responsible Python values.

    Args:
        comparison, expected, changed, compare: see `causes_of`.
        eager_difference: first difference of the two eager runs.
        explained: True if another cause was found.
    """
    size_text = ""
    # Here, both runs are eager.
    first, second = eager_difference.eager, eager_difference.captured
    if (
        first is not None
        and second is not None
        and first.is_floating_point()
        and first.shape == second.shape
    ):
        size_text = f" by up to {float((first.double() - second.double()).abs().max()):.3g}"
    label = eager_difference.name or "the output"
    if eager_difference.what == "gradients":
        label = f"gradient of {eager_difference.name!r}"
    yield (
        "The eager run is not deterministic: two runs from the same state differ in "
        f"{label}{size_text}."
    )

    def settles(changes: Sequence[PythonChange]) -> bool:
        return compare(expected, _run_with_former_values(comparison, changes)) is None

    proven = bool(changed) and settles(changed)
    if proven:
        # Leave out each value without which the others still explain the difference.
        needed = list(changed)
        for change in changed[:_MOST] if len(changed) > 1 else ():
            others = [other for other in needed if other is not change]
            if others and settles(others):
                needed = others
        changed = needed
    # Values that are not proven are named only if there is no other cause.
    if changed and (proven or not explained):
        yield from _lines_of_changes(comparison, changed)
    elif not explained:
        yield (
            "Neither Python values of the model nor custom ops explain this difference: look for "
            "state that is kept between calls."
        )


def _explain_changed_values(
    comparison: EagerComparison,
    expected: StepResult,
    outcome: StepResult,
    compare: OutcomeComparer,
) -> Iterator[str]:
    """Yield lines about Python values that changed since the capture, if they are the cause."""
    changed = comparison.before.changes()
    if not changed:
        return
    tracer = LineTracer([change.mark for change in changed])
    eager_result = _run_with_former_values(comparison, changed, tracer)
    result = "the eager run matches the capture"
    if compare(eager_result, outcome, exact=False) is not None:
        # Compiled code may also round differently.
        rest = largest_difference(expected, outcome) / _NEGLIGIBLE
        if not rest or compare(eager_result, outcome, atol=rest) is not None:
            return
        result = f"no value of the eager run differs by more than {rest:.2g}"
    yield (
        "The difference comes from Python values that have changed since the capture began. "
        f"With the original values, {result}."
    )
    yield from _lines_of_changes(comparison, changed, tracer)


def _run_with_former_values(
    comparison: EagerComparison, changed: Sequence[PythonChange], tracer: LineTracer | None = None
) -> StepResult:
    """Run eagerly with the former Python values, then restore the current values."""
    current_values = [change.value() for change in changed]
    # A copy, because the run may change the former value too.
    for change in changed:
        change.put(change.copy_before())
    try:
        return comparison.eager(contextlib.nullcontext if tracer is None else tracer.tracing)
    finally:
        for change, value in zip(changed, current_values, strict=True):
            change.put(value)


def _lines_of_changes(
    comparison: EagerComparison, changed: Sequence[PythonChange], tracer: LineTracer | None = None
) -> Iterator[str]:
    """Yield a line for each changed Python value."""
    tracer = tracer or _trace(comparison, [change.mark for change in changed])
    for number, change in enumerate(changed[:_MOST]):
        yield f"Python state changed: {change}{tracer.line(number)}"


def _trace(comparison: EagerComparison, probes: Sequence[Callable[[], Any]]) -> LineTracer:
    """Run eagerly, and return the tracer of the values that the probes read."""
    tracer = LineTracer(probes)
    comparison.eager(tracer.tracing)
    return tracer


class LineTracer:
    """A tracer that checks some values after each line of the user's code.

    Args:
        probes: one function per traced value. The function's result changes when the value does.
    """

    def __init__(self, probes: Sequence[Callable[[], Any]]):
        self._probes = probes
        self._first_changes: dict[int, Line] = {}  # by the number of the probe
        self._marks: list[Any] = []  # the latest results of the probes
        self._last: Line | None = None  # the line that runs now

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace this thread inside the context. The tracer of a debugger or coverage is paused."""
        self._marks = [probe() for probe in self._probes]
        outer_tracer = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(outer_tracer)
            self._compare_marks()  # for the last line

    def line(self, number: int) -> str:
        """Return the line of a value's first change, as part of a sentence; "" if unknown."""
        line = self._first_changes.get(number)
        return "" if line is None else f", at {format_line(line)}"

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """Trace a new frame, as `sys.settrace` calls it: return the tracer of its lines."""
        if not is_user_file(frame.f_code.co_filename):
            return None
        self._compare_marks()
        self._last = line_of(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        """Trace a line, or the return, of a frame of the user's."""
        self._compare_marks()
        caller: FrameType | None = frame
        if event == "return":  # the caller continues in the middle of its line
            caller = next(user_frames(frame.f_back), None)
        if caller is not None:
            self._last = line_of(caller)
        return self._step

    def _compare_marks(self) -> None:
        """Note the current line for each value that has changed since the last comparison."""
        for number, probe in enumerate(self._probes):
            mark = probe()
            if mark != self._marks[number]:
                self._marks[number] = mark
                if self._last is not None:
                    self._first_changes.setdefault(number, self._last)


_TORCHS = KNOWN_NAMESPACES | {"prim", "profiler", "quantized", "mkldnn", "torchgraph"}
"""Namespaces of torch's own ops."""


class OpProbe(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that probes each custom op that runs inside it for three defects.

    - The op writes to an argument that its schema does not declare as mutated.
    - The op returns a different result if it is called again with the same arguments.
    - The fake implementation returns metadata that differs from the op's result.

    Args:
        generators: function that returns the state of the random number generators.
        stateful: True to also call each op again.
        fakes: True to also compare each op with its fake implementation.

    Attributes:
        causes: kind and op of each defect, by a sentence about the defect with the user's line.
    """

    supports_higher_order_operators = True
    """Without this flag, torch raises NotImplementedError at torch.cond."""

    def __init__(self, generators: Callable[[], Generators], *, stateful: bool, fakes: bool):
        super().__init__()  # type: ignore[no-untyped-call]
        self.causes: dict[str, tuple[DivergenceKind, str]] = {}
        self._generators = generators
        self._stateful = stateful
        self._fakes = fakes

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True. Otherwise, Dynamo would never again compile a frame that ran in the mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # The subclass unwraps its tensors, and the op arrives again.
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        if not _is_custom(func):
            return func(*args, **kwargs)
        cloned_arguments = _cloned((args, kwargs))
        drawn = self._generators() if self._stateful else None
        output = func(*args, **kwargs)
        self._check_writes(func, cloned_arguments, args, kwargs)
        if drawn is not None:
            self._call_again(func, cloned_arguments, output, drawn)
        if self._fakes:
            self._compare_with_fake(func, cloned_arguments, output)
        return output

    def _report(self, kind: DivergenceKind, func: Any, claim: str) -> None:
        """Add a defect to `causes`, with the user's running line."""
        line = current_line()
        location = "" if line is None else f", at {format_line(line)}"
        self.causes.setdefault(f"{claim}{location}.", (kind, str(func)))

    def _check_writes(
        self, func: Any, cloned_arguments: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Report each argument that the op has changed without declaring it."""
        declared = {argument.name for argument in func._schema.arguments if argument.is_write}
        names = [argument.name for argument in func._schema.arguments]
        # Arguments in `kwargs`, and defaults, are not in `args`.
        current_arguments = [*zip(names, args, strict=False), *kwargs.items()]
        former_arguments = [*cloned_arguments[0], *cloned_arguments[1].values()]
        for (name, value), former in zip(current_arguments, former_arguments, strict=True):
            if name not in declared and not _equal_tensors(value, former):
                self._report(
                    "write",
                    func,
                    f"Custom op {_name(func)} writes to its argument {name!r}, which mutates_args "
                    "does not declare",
                )

    def _call_again(self, func: Any, cloned_arguments: Any, output: Any, drawn: Generators) -> None:
        """Report an op that has another result in a second call, with the same random numbers."""
        after = self._generators()
        drawn.restore()
        try:
            args, kwargs = _cloned(cloned_arguments)
            second_output = func(*args, **kwargs)
        finally:
            after.restore()
        if not _equal_tensors(second_output, output):
            self._report(
                "state",
                func,
                f"Custom op {_name(func)} has hidden state: two calls with the same arguments "
                "return different results",
            )

    def _compare_with_fake(self, func: Any, cloned_arguments: Any, output: Any) -> None:
        """Report the first property in which the fake result differs from the real one."""
        mode = torch_private.get("fake_tensor_mode")(allow_non_fake_inputs=True)
        try:
            args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, cloned_arguments)
            with mode:
                fake = func(*args, **kwargs)
        except Exception:  # no fake implementation, or data-dependent sizes
            return
        # Only the tensors that both return are compared.
        for fake_tensor, real_tensor in zip(_tensors(fake), _tensors(output), strict=False):
            for property_name, left, right in _differing_properties(fake_tensor, real_tensor):
                self._report(
                    "fake",
                    func,
                    f"The fake implementation of custom op {_name(func)} returns {property_name} "
                    f"{left}, but the op returns {right}",
                )
                return


def _is_custom(func: Any) -> bool:
    """Return True for an op that is not torch's, and that may be called again.

    A second call of an op that communicates would confuse the other ranks.
    """
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace not in _TORCHS
        and not effects.facts(func).communicates
    )


def _name(func: Any) -> str:
    return str(func).removesuffix(".default")


def _cloned(values: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), values)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _equal_tensors(a: Any, b: Any) -> bool:
    """Return True if the tensors in two values are equal. NaN equals NaN."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and (
            x.is_meta
            or torch.equal(x, y)
            or (x.layout is torch.strided and torch.allclose(x, y, 0, 0, equal_nan=True))
        )
        for x, y in zip(_tensors(a), _tensors(b), strict=False)  # those that both values have
    )


def _differing_properties(
    claimed: torch.Tensor, actual: torch.Tensor
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name and both values of each property that differs, as far as they can be compared."""
    if claimed.dtype != actual.dtype:
        yield "dtype", claimed.dtype, actual.dtype
    if claimed.device.type != actual.device.type:
        yield "device", claimed.device, actual.device
    if claimed.layout is not torch.strided or actual.layout is not torch.strided:
        return
    if not all(isinstance(size, int) for size in (*claimed.shape, *claimed.stride())):
        return  # data-dependent size
    if claimed.shape != actual.shape:
        yield "shape", tuple(claimed.shape), tuple(actual.shape)
        return
    if actual.numel() and differ_in_strides(actual.shape, claimed.stride(), actual.stride()):
        yield "strides", claimed.stride(), actual.stride()


def differ_in_strides(shape: Sequence[int], left: Sequence[int], right: Sequence[int]) -> bool:
    """Return True if two strides differ; the stride of a dimension of size 1 has no effect."""
    return any(a != b for size, a, b in zip(shape, left, right, strict=True) if size > 1)
