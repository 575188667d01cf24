"""Provable causes of a difference from the eager run.

The causes are found by running eagerly again, without compiling, and only after a failed
comparison.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import torch
import torch.utils._pytree as pytree

from .. import torch_private
from ..convert import effects
from ..convert.source_lines import Line, current, described, is_user_file, line_of
from ..graph.divergence import DivergenceKind
from ..ops.views import KNOWN_NAMESPACES
from .rounding import Unequal
from .subject import EagerComparison, Generators, PythonChange, StepResult

_MOST = 6
"""Maximum number of changed Python values that are tried separately."""


class Differ(Protocol):
    """A comparison of two outcomes, bitwise or within the tolerance of the check."""

    def __call__(
        self, eager: StepResult, other: StepResult, *, exact: bool = True
    ) -> Unequal | None:
        """Return the first difference, or `None`."""
        ...


@dataclass(frozen=True)
class Causes:
    """The causes of a difference.

    Attributes:
        lines: lines for the message.
        may_be_rounding: True if no cause was found and code was compiled.
        kind: kind of the first cause, as in `Divergence`; "" without a cause.
        op: custom op of the first cause, "" if it is not an op.
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
    differ: Differ,
) -> Causes:
    """Return the causes that make a captured run differ.

    Args:
        comparison: the two runs.
        expected: outcome of the eager run.
        outcome: outcome of the captured run.
        changed: Python values that changed during the eager run.
        differ: compares outcomes.
    """
    own = differ(expected, comparison.eager())
    probe = OpProbe(comparison.generators, stateful=own is not None, fakes=comparison.traces)
    comparison.inside(lambda: probe)
    lines = list(probe.found)
    lines += _numpy(comparison, expected, outcome)
    kind, op = next(iter(probe.found.values()), (("random" if lines else ""), ""))
    if own is not None:
        lines += _unlike_itself(comparison, expected, own, changed, differ, bool(lines))
    elif not lines:
        lines += _changed_since(comparison, outcome, differ)
    return Causes(lines, not lines and comparison.compiles, kind or ("state" if lines else ""), op)


def _numpy(comparison: EagerComparison, expected: StepResult, outcome: StepResult) -> Iterator[str]:
    """Detect np.random. Dynamo draws from torch's generator, so numpy's state did not change."""
    if not comparison.compiles or expected.numpy == outcome.numpy:
        return
    if torch_private.get("config").use_numpy_random_stream:
        return
    import numpy as np

    def state() -> Any:
        return str(np.random.get_state(legacy=False))

    line = _lines(comparison, [state])[0]
    yield (
        f"np.random draws different numbers in compiled code{line}: torch.compile uses torch's "
        "generator instead. Set torch._dynamo.config.use_numpy_random_stream = True to keep "
        "numpy's generator, at the cost of a graph break."
    )


def _unlike_itself(
    comparison: EagerComparison,
    expected: StepResult,
    own: Unequal,
    changed: Sequence[PythonChange],
    differ: Differ,
    explained: bool,
) -> Iterator[str]:
    """Explain two eager runs that differ from the same state, by Python values if they cause it."""
    by = ""
    if own.eager is not None and own.captured is not None and own.eager.is_floating_point():
        size = float((own.eager.double() - own.captured.double()).abs().max())
        by = f" by up to {size:.3g}"
    label = f"gradient of {own.name}" if own.what == "gradients" else own.name or "the output"
    yield (
        f"The eager run is not deterministic: two runs from the same state differ in {label}{by}."
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
            "Neither Python values of the model nor custom ops explain this difference: look for "
            "state that is kept between calls."
        )


def _changed_since(
    comparison: EagerComparison, outcome: StepResult, differ: Differ
) -> Iterator[str]:
    """Return Python values that changed since the capture, if they cause the difference."""
    changed = comparison.before.changes()
    if not changed:
        return
    tracer = LineTracer([change.mark for change in changed])
    again = _with_former(comparison, changed, tracer)
    if differ(again, outcome, exact=False) is None:
        yield "With the Python values from before the capture, the eager run matches the capture."
        yield from _named(comparison, changed, tracer)


def _with_former(
    comparison: EagerComparison, changed: Sequence[PythonChange], tracer: LineTracer | None = None
) -> StepResult:
    """Run eagerly with the former Python values, then restore the current values."""
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
    with contextlib.suppress(Exception):  # the value contains something that cannot be copied
        return copy.deepcopy(value) if not isinstance(value, torch.Tensor) else value
    return copy.copy(value)


def _named(
    comparison: EagerComparison, changed: Sequence[PythonChange], tracer: LineTracer | None = None
) -> Iterator[str]:
    """Return a line for each changed Python value."""
    probes = [change.mark for change in changed]
    lines = (
        _lines(comparison, probes)
        if tracer is None
        else [tracer.line(n) for n in range(len(probes))]
    )
    for change, line in itertools.islice(zip(changed, lines, strict=True), _MOST):
        yield f"Python state changed: {change}{line}"


def _lines(comparison: EagerComparison, probes: Sequence[Callable[[], Any]]) -> list[str]:
    """Return where the user's code changes each value in an eager run, as part of a sentence."""
    tracer = LineTracer(probes)
    comparison.inside(tracer.tracing)
    return [tracer.line(number) for number in range(len(probes))]


class LineTracer:
    """A tracer that checks some values after each line of the user's code.

    Args:
        probes: functions whose results change when the traced value does.
    """

    def __init__(self, probes: Sequence[Callable[[], Any]]):
        self._probes = probes
        self._found: dict[int, Line] = {}
        self._marks: list[Any] = []
        self._last: Line | None = None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace this thread inside the context. A debugger's or coverage's tracer is suspended."""
        self._marks = [probe() for probe in self._probes]
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            self._look()

    def line(self, number: int) -> str:
        """Return the line of a value's first change, as part of a sentence; "" if unknown."""
        line = self._found.get(number)
        return "" if line is None else f", at {described(line)}"

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if not is_user_file(frame.f_code.co_filename):
            return None
        self._look()
        self._last = line_of(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        self._look()
        caller: FrameType | None = frame
        if event == "return":  # the caller continues in the middle of its line
            caller = frame.f_back
            while caller is not None and not is_user_file(caller.f_code.co_filename):
                caller = caller.f_back
        if caller is not None:
            self._last = line_of(caller)
        return self._step

    def _look(self) -> None:
        for number, probe in enumerate(self._probes):
            mark = probe()
            if mark != self._marks[number]:
                self._marks[number] = mark
                if self._last is not None:
                    self._found.setdefault(number, self._last)


_TORCHS = KNOWN_NAMESPACES | {"prim", "profiler", "quantized", "mkldnn", "torchgraph"}
"""Namespaces of torch's own ops."""


class OpProbe(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A probe of each custom op that runs inside.

    Detects ops that write to an argument without declaring it in the schema, return a different
    result when called again with the same arguments, or have a fake implementation whose results
    differ.

    Args:
        generators: returns the state of the random number generators.
        stateful: also call each op again.
        fakes: also compare with the fake implementations.

    Attributes:
        found: maps a sentence about each defect, with the user's line, to its kind and op.
    """

    supports_higher_order_operators = True
    """Otherwise torch raises NotImplementedError at torch.cond instead of running it."""

    def __init__(self, generators: Callable[[], Generators], *, stateful: bool, fakes: bool):
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, tuple[DivergenceKind, str]] = {}
        self._generators = generators
        self._stateful = stateful
        self._fakes = fakes

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: otherwise Dynamo never again compiles a frame that ran under the mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if types and torch_private.stands_for_others(types):
            return NotImplemented
        if not _is_custom(func):
            return func(*args, **kwargs)
        before = _cloned((args, kwargs))
        drawn = self._generators() if self._stateful else None
        output = func(*args, **kwargs)
        self._look_at_writes(func, before, args, kwargs)
        if drawn is not None:
            self._call_again(func, before, output, drawn)
        if self._fakes:
            self._compare_with_fake(func, before, output)
        return output

    def _say(self, kind: DivergenceKind, func: Any, what: str) -> None:
        line = current()
        at = "" if line is None else f", at {described(line)}"
        self.found.setdefault(f"{what}{at}.", (kind, str(func)))

    def _look_at_writes(
        self, func: Any, before: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        declared = {argument.name for argument in func._schema.arguments if argument.is_write}
        names = [argument.name for argument in func._schema.arguments]
        now = [*zip(names, args, strict=False), *kwargs.items()]
        then = [*before[0], *before[1].values()]
        for (name, value), old in zip(now, then, strict=True):
            if name not in declared and not _are_same(value, old):
                self._say(
                    "write",
                    func,
                    f"Custom op {_name(func)} writes to its argument {name!r}, which mutates_args "
                    "does not declare",
                )

    def _call_again(self, func: Any, before: Any, output: Any, drawn: Generators) -> None:
        after = self._generators()
        drawn.restore()
        try:
            args, kwargs = _cloned(before)
            again = func(*args, **kwargs)
        finally:
            after.restore()
        if not _are_same(again, output):
            self._say(
                "state",
                func,
                f"Custom op {_name(func)} has hidden state: two calls with the same arguments "
                "return different results",
            )

    def _compare_with_fake(self, func: Any, before: Any, output: Any) -> None:
        mode = torch_private.get("fake_tensor_mode")(allow_non_fake_inputs=True)
        try:
            args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, before)
            with mode:
                fake = func(*args, **kwargs)
        except Exception:  # no fake implementation, or data-dependent sizes
            return
        for claimed, real in zip(_tensors(fake), _tensors(output), strict=False):
            for what, left, right in _forms(claimed, real):
                self._say(
                    "fake",
                    func,
                    f"The fake implementation of custom op {_name(func)} returns {what} {left}, "
                    f"but the op returns {right}",
                )
                return


def _is_custom(func: Any) -> bool:
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace not in _TORCHS
        and not effects.facts(func).communicates
    )


def _name(func: Any) -> str:
    return str(func).removesuffix(".default")


def _cloned(values: Any) -> Any:
    def clone(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    return pytree.tree_map_only(torch.Tensor, clone, values)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _are_same(a: Any, b: Any) -> bool:
    """Return True if the tensors in two values are equal, NaN to NaN."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and (x.is_meta or torch.equal(x, y) or _equal_but_for_nan(x, y))
        for x, y in zip(_tensors(a), _tensors(b), strict=False)
    )


def _equal_but_for_nan(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not (a.is_floating_point() or a.is_complex()) or a.layout is not torch.strided:
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _forms(fake: torch.Tensor, real: torch.Tensor) -> Iterator[tuple[str, Any, Any]]:
    """Return the properties of a fake result that differ from the real result."""
    if fake.dtype != real.dtype:
        yield "dtype", fake.dtype, real.dtype
    if fake.device.type != real.device.type:
        yield "device", fake.device, real.device
    if fake.layout is not torch.strided or real.layout is not torch.strided:
        return
    if not all(isinstance(size, int) for size in (*fake.shape, *fake.stride())):
        return  # data-dependent size
    if fake.shape != real.shape:
        yield "shape", tuple(fake.shape), tuple(real.shape)
        return
    pairs = [  # strides of dimensions of size 1 are irrelevant
        pair
        for size, *pair in zip(real.shape, fake.stride(), real.stride(), strict=True)
        if size > 1
    ]
    if real.numel() and any(left != right for left, right in pairs):
        yield "strides", fake.stride(), real.stride()
