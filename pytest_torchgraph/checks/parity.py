"""Comparison of a captured run with an eager run: outputs, gradients and final state."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import torch_private
from ..context import CONTEXT
from ..errors import CaptureError
from ..graph.checks import need_any_graph
from ..graph.divergence import Divergence
from ..graph.failures import UnexpectedOps, failed
from ..graph.model import Ref
from ..words import listed, with_article
from .causes import Causes, causes_of, differ_in_strides
from .compilation import need_graphs
from .rounding import (
    Tolerance,
    Unequal,
    absolute,
    dense,
    explain_rounding,
    is_all_nan,
    largest_value,
    size_lines,
    tolerances,
)
from .subject import CallsComparison, Comparison, EagerComparison, StepResult

if TYPE_CHECKING:
    from .subject import Subject

_SEARCHED = ("aot", "inductor", "dynamo")
"""Mechanisms whose stages can be captured separately."""
_SEARCH = "capture the same call via 'aot', 'inductor' or 'dynamo'"
_LIKE_AOT = frozenset({"aot", "dynamo", "compiled_autograd"})
"""Mechanisms that compute as the backends of `_AOT_BACKENDS` do."""
_AOT_BACKENDS = frozenset({"aot_eager", "aot_eager_decomp_partition"})
_SINGLE = (type, enum.Enum, torch.dtype, torch.layout, torch.memory_format)
"""Types with one object per value, so objects of the two runs can be compared by identity."""
_ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "nothing"})()


def assert_matches_eager(
    capture: Subject,
    comparison: Comparison,
    rtol: Tolerance,
    atol: Tolerance,
    *,
    strides: bool,
) -> None:
    """See `Capture.assert_matches_eager`."""
    __tracebackhide__ = True
    if isinstance(comparison, CallsComparison):
        assert_calls_match(comparison, rtol, atol, strides=strides)
        return
    if capture.watched is not None:
        raise CaptureError(
            "a watch cannot repeat eagerly what ran in it. To compare your compiled code with "
            "eager: graph_capture.steady(target, (x,), (x,)).assert_matches_eager()"
        )
    need_graphs(capture)
    # `None` via other mechanisms, whose graphs are not those of torch.compile.
    layout = strides if capture.via in _SEARCHED else None
    compared = _EagerRunComparison(capture, comparison, rtol, atol, layout)
    unequal, outcome, expected = compared.unequal, compared.outcome, compared.expected
    if unequal is not None:
        causes = compared.causes()
        lines = [unequal.problem, *size_lines(unequal), *causes.lines]
        if causes.may_be_rounding:
            lines += explain_rounding(unequal, compared.comparison, expected)
        divergence, seconds = None, CONTEXT.divergence
        # A difference of layout has no first op that computes something else.
        if unequal.what == "layout":
            lines += _returned_by(capture, outcome, unequal.name)
        elif seconds and capture.via in _SEARCHED:
            divergence = compared.divergence(causes, seconds)
            lines.append(str(divergence))
        elif not causes.lines:
            way = "call first_difference()" if capture.via in _SEARCHED else _SEARCH
            lines.append(f"To find the first op that differs, {way}")
        if capture.via != "inductor" and ("inductor", True) in compared.comparison.backends:
            lines.append(
                f"The target uses inductor: the capture ran via {capture.via}, not inductor"
            )
        raise failed("\n".join(lines), _picture(divergence))
    # Last, because values that differ prove more than values that are too small.
    _refuse_vacuous(expected, outcome, rtol, atol)


def assert_calls_match(
    calls: CallsComparison, rtol: Tolerance, atol: Tolerance, *, strides: bool
) -> None:
    """See `Capture.assert_matches_eager`, for `steady`."""
    __tracebackhide__ = True
    total = len(calls.captured)
    if calls.idle:
        reasons = calls.eager_calls or ["compile it: steady(torch.compile(target), ...)"]
        first = f"no compiled code ran in call {calls.idle[0] + 1} of {total}:"
        raise AssertionError("\n  ".join([first, *reasons]))
    lines: list[str] = []

    def compare(number: int, eager: StepResult) -> bool:
        """Add the problem of a call to `lines`. Return True if it has one, to end the run."""
        captured = calls.captured[number]
        unequal = difference(eager, captured, rtol, atol, layout=strides)
        try:
            if unequal is None:
                _refuse_vacuous(eager, captured, rtol, atol)
                return False
            problem = unequal.problem
        except AssertionError as vacuous:
            problem = str(vacuous)
        lines.append(f"call {number + 1} of {total}: {problem}")
        lines.extend(size_lines(unequal) if unequal else ())
        return True

    calls.eager(compare)
    if not lines:
        return
    if calls.changes:
        lines.append(
            "The calls changed Python values, which the eager run did not put back: "
            f"{listed(calls.changes)}."
        )
    if ("inductor", True) in calls.backends:
        lines.append(
            "If the calls draw random numbers: inductor draws others than eager, unless you set "
            "torch._inductor.config.fallback_random = True before it compiles."
        )
    raise AssertionError("\n".join(lines))


def _refuse_vacuous(
    expected: StepResult, outcome: StepResult, rtol: Tolerance, atol: Tolerance
) -> None:
    """Refuse equal results that any other step might have too."""
    _refuse_empty(outcome)
    outputs, grads = outcome.outputs, outcome.grads
    nan_names = [name for name, output in outputs.items() if is_all_nan(output)]
    nan_names += [f"gradient of {name!r}" for name, grad in grads.items() if is_all_nan(grad)]
    if nan_names:
        verb = "contains" if len(nan_names) == 1 else "contain"
        raise AssertionError(
            f"nothing compared: {listed(nan_names)} {verb} only NaN. Use inputs and parameters "
            "that give finite numbers"
        )
    _refuse_small("outputs", expected.outputs, outputs, rtol, atol)
    _refuse_small("gradients", expected.grads, grads, rtol, atol)


def first_difference(
    capture: Subject,
    comparison: Comparison,
    rtol: Tolerance,
    atol: Tolerance,
) -> Divergence | None:
    """See `Capture.first_difference`."""
    if capture.via not in _SEARCHED:
        raise CaptureError(f"first_difference() is not available via {capture.via!r}: {_SEARCH}")
    compared = _EagerRunComparison(capture, comparison, rtol, atol)
    if compared.unequal is None:
        return None
    return compared.divergence(compared.causes(), None)


class _EagerRunComparison:
    """A captured run and an eager run, with their first unequal value.

    Both runs take place when the object is made.

    Args:
        capture: the checked capture.
        comparison: repeats its run, and runs it eagerly.
        rtol, atol: the tolerances.
        layout: True to also compare strides and sharing, False for sharing alone, `None` for
            neither.

    Raises:
        CaptureError: if there is no run to compare with.
    """

    def __init__(
        self,
        capture: Subject,
        comparison: Comparison,
        rtol: Tolerance,
        atol: Tolerance,
        layout: bool | None = None,
    ):
        need_any_graph(capture.graphs)
        if not isinstance(comparison, EagerComparison):
            raise CaptureError(
                "this capture has no eager run to compare with: it was loaded from a file, or "
                "made with fake=True, by watch(), or for one of several ranks. Use "
                "graph_capture(target, ...)"
            )
        self.comparison = comparison
        self._capture, self._rtol, self._atol, self._layout = capture, rtol, atol, layout
        # In this order: Python values count that the eager run alone changes, and the backends are
        # complete only after it.
        self.outcome = comparison.captured()
        python_values = comparison.python()
        self.expected = comparison.eager()
        self._refuse_backends()
        self.unequal = self._differ(self.expected, self.outcome, exact=False)
        self._changed = python_values.changes() if self.unequal is not None else ()

    def _refuse_backends(self) -> None:
        """Refuse code that was compiled with a backend that computes otherwise than the capture."""
        via, backends = self._capture.via, self.comparison.backends
        same = {"eager", "inductor"} | (_AOT_BACKENDS if via in _LIKE_AOT else set())
        if replaced := sorted(backends - {(name, True) for name in same}):
            raise CaptureError(
                f"the target, or part of it, is compiled with backend "
                f"{listed(repr(name) for name, _ in replaced)}, but the capture ran via {via!r}, "
                "without it. To compare your own compiled code with eager: "
                "graph_capture.steady(target, (x,), (x,)).assert_matches_eager()"
            )

    def _differ(
        self, eager: StepResult, other: StepResult, *, exact: bool = True, atol: float = 0
    ) -> Unequal | None:
        """See `OutcomeComparer`."""
        allowed = (0, atol) if exact else (self._rtol, self._atol)
        return difference(eager, other, *allowed, layout=self._layout)

    def causes(self) -> Causes:
        """Return the causes that further eager runs can prove."""
        return causes_of(self.comparison, self.expected, self.outcome, self._changed, self._differ)

    def divergence(self, causes: Causes, seconds: float | None) -> Divergence:
        """Return the first difference, without a search if a cause is already proven."""
        if causes.kind:
            # A custom op is the first difference wherever it first runs.
            for graph in self._capture.program:
                nodes = tuple(node for node in graph.nodes if node.op == causes.op)
                if nodes:
                    first_node = nodes[0]
                    return Divergence(
                        "eager",
                        causes.kind,
                        (first_node,),
                        module=first_node.module,
                        graph=graph.name,
                        source=first_node.source,
                        sure=True,
                        drawn=graph,
                    )
            if causes.kind != "random":
                return Divergence("eager", causes.kind, sure=True)
            # Numbers drawn by numpy are no node of a graph.
            reason = "np.random draws different numbers in compiled code"
            return Divergence("dynamo", causes.kind, sure=True, reason=reason)

        def differs(outcome: StepResult) -> bool:
            return difference(self.expected, outcome, self._rtol, self._atol) is not None

        return self.comparison.search(self.expected, differs, seconds)


def _picture(divergence: Divergence | None) -> UnexpectedOps | None:
    """Return the picture of a divergence: its graph with marked nodes."""
    if divergence is None or divergence.drawn is None or not divergence.nodes:
        return None
    return UnexpectedOps((divergence.drawn,), divergence.nodes, "first difference")


def _refuse_empty(outcome: StepResult) -> None:
    """Refuse outputs without an element, and gradients that are all zero."""
    outputs, grads = outcome.outputs, outcome.grads
    if outputs and not any(output.numel() for output in outputs.values()):
        verb = "has" if len(outputs) == 1 else "have"
        raise AssertionError(
            f"nothing compared: {listed(outputs)} {verb} no elements. Use inputs for which the "
            "output is not empty"
        )
    if grads and not any(bool(dense(grad).count_nonzero()) for grad in grads.values()):
        raise AssertionError(
            "nothing compared: all gradients are zero. Use inputs, parameters and a loss_fn that "
            "give nonzero gradients"
        )


def _refuse_small(
    group: str,
    eager: Mapping[str, torch.Tensor],
    captured: Mapping[str, torch.Tensor],
    rtol: Tolerance,
    atol: Tolerance,
) -> None:
    """Refuse values so small that zeros would match them.

    Raises:
        AssertionError: if no floating-point value of either run exceeds its tolerance.
    """
    floats = [
        (name, tensor)
        for tensors in (eager, captured)
        for name, tensor in tensors.items()
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel()
    ]
    # The largest value, with its tolerance, for the message.
    largest, largest_name, limit = 0.0, "", 0.0
    for name, tensor in floats:
        size, allowed = largest_value(tensor), absolute(rtol, atol, tensor)
        if not size <= allowed:  # True for NaN, unlike `size > allowed`
            return
        if size >= largest:
            largest, largest_name, limit = size, name, allowed
    if not floats:
        return
    label = largest_name if group == "outputs" else f"the gradient of {largest_name!r}"
    values = "all floating-point outputs" if group == "outputs" else "all gradients"
    if not largest:  # no tolerance helps
        raise AssertionError(
            f"nothing compared: {values} are zero. Use inputs and parameters that give nonzero "
            f"{group}"
        )
    reason, smaller = f"the absolute tolerance ({limit:.3g}) of zero", "atol=0"
    remedy = ", or use inputs that give larger outputs"
    if group == "gradients":
        remedy = ", or use a loss_fn with larger gradients, for example a sum instead of a mean"
    if math.isinf(limit):
        reason, smaller, remedy = "a relative tolerance of 1 or more", "rtol=1e-3", ""
    raise AssertionError(
        f"nothing compared: {values} are within {reason}, so zeros would pass too (largest value: "
        f"{largest:.3g}, in {label}). Pass a smaller tolerance, such as "
        f"assert_matches_eager({smaller}){remedy}"
    )


def difference(
    eager: StepResult,
    captured: StepResult,
    rtol: Tolerance,
    atol: Tolerance,
    *,
    layout: bool | None = None,
) -> Unequal | None:
    """Return the first tensor outside the tolerance, or the first other unequal value.

    Return `None` if there is no difference. For `layout`, see `_EagerRunComparison`. Types and keys
    are compared first, because the other comparisons presume them to be equal.

    Raises:
        CaptureError: for tensors on the meta device.
    """
    return (
        _structure_difference(eager, captured)
        or _tensor_difference("outputs", eager.outputs, captured.outputs, rtol, atol)
        or _value_difference(eager, captured)
        or _tensor_difference("gradients", eager.grads, captured.grads, rtol, atol)
        or _tensor_difference("state", eager.state, captured.state, rtol, atol)
        or (None if layout is None else _layout_difference(eager, captured, strides=layout))
    )


def _layout_difference(eager: StepResult, captured: StepResult, *, strides: bool) -> Unequal | None:
    """Return the first output with other strides, or that shares memory with another tensor.

    Args:
        eager, captured: two results without any other difference.
        strides: False to compare only what is shared.
    """
    for path, output in captured.outputs.items():
        of_eager, own = eager.strides.get(path), captured.strides.get(path)
        if strides and of_eager and own and differ_in_strides(output.shape, of_eager, own):
            return Unequal(f"{path}: strides {of_eager} in eager, {own} captured", "layout", path)
    for path, sharing in captured.sharing.items():
        for relation, *names in zip(_SHARING, eager.sharing[path], sharing, strict=True):
            # "" where the memory is unknown: the pending result of a collective is a subclass in
            # eager, and the tensor itself in a graph.
            if names[0] != names[1] and "" not in names:
                left, right = ["nothing" if name == path else name for name in names]
                problem = f"{path}: {relation} {left} in eager, {right} captured"
                return Unequal(problem, "layout", path)
    return None


_SHARING = ("the same tensor as", "shares memory with")


def _returned_by(capture: Subject, outcome: StepResult, path: str) -> Iterator[str]:
    """Yield a line with the op that returns an output, if a single graph returns all outputs."""
    graph = capture.forwards[0]
    if len(capture.forwards) != 1 or outcome.others or graph.output is None:
        return
    # A graph whose output has no structure has the returned nodes in order.
    values = [value for _, value in graph.output] or [Ref(node.name) for node in graph.outputs]
    # The lengths are compared below.
    value = dict(zip(outcome.outputs, values, strict=False)).get(path)
    if len(values) == len(outcome.outputs) and isinstance(value, Ref):
        node = graph.by_name[value.name]
        if node.is_call:
            line = f" ({node.source})" if node.source else ""
            yield f"The op that returns it: {node.op.removesuffix('.default')}{line}."


def _structure_difference(eager: StepResult, captured: StepResult) -> Unequal | None:
    """Return the first container or leaf whose type differs, or that only one run returned."""
    left, right = _types(captured), _types(eager)
    for path, kind in left.items():
        expected_kind = right.get(path, kind)
        if _full_name(kind) != _full_name(expected_kind):
            names = _with_article(kind), _with_article(expected_kind)
            if names[0] == names[1]:  # two classes with one name
                names = _full_name(kind), _full_name(expected_kind)
            return Unequal(f"{path} is {names[0]}, but {names[1]} in the eager run")
    if left.keys() != right.keys():
        return Unequal(f"outputs: {_only_in_one(left, right)}")
    return None


def _only_in_one(captured: Mapping[str, object], eager: Mapping[str, object]) -> str:
    """Name the values that only one of the two runs has."""
    names_of_run = {
        "captured": [name for name in captured if name not in eager],
        "eager": [name for name in eager if name not in captured],
    }
    return "; ".join(
        f"only the {run} run has {', '.join(names[:5])}"
        for run, names in names_of_run.items()
        if names
    )


def _types(outcome: StepResult) -> dict[str, type]:
    """Return the types of all leaves and containers of an output, by path."""
    return {
        **dict.fromkeys(outcome.outputs, torch.Tensor),
        **{path: type(value) for path, value in outcome.others.items()},
        **outcome.containers,
    }


def _full_name(kind: type) -> str:
    """Return the full name of a type, to compare types that each run defines anew."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _with_article(kind: type) -> str:
    """Return the name of a type for a message: "a list", "an int", "None"."""
    name = "tensor" if kind is torch.Tensor else kind.__name__
    if name == "NoneType":
        return "None"
    return with_article(name)


def _value_difference(eager: StepResult, captured: StepResult) -> Unequal | None:
    """Return the first unequal non-tensor leaf, or tensor whose `requires_grad` differs."""
    for path, value in captured.others.items():
        expected = eager.others.get(path, _ABSENT)
        if not _is_same(value, expected):
            return Unequal(
                f"{path} is {_format_value(value)}, but {_format_value(expected)} in the eager run"
            )
    for path in captured.outputs:
        requires_grad = path in captured.requires_grad
        if requires_grad != (path in eager.requires_grad):
            texts = ("requires grad, but does not", "does not require grad, but does")
            return Unequal(f"{path} {texts[not requires_grad]} in the eager run")
    return None


def _format_value(value: Any) -> str:
    return f"{value!r:.200} ({type(value).__name__})"


def _is_same(a: Any, b: Any) -> bool:
    """Return True if two values of the same type are equal.

    NaN equals NaN. Callables are equal if they have the same qualified name. Objects without `==`
    are always equal, because their types were compared before.
    """
    if callable(a) and not isinstance(a, type):
        return getattr(a, "__qualname__", "") == getattr(b, "__qualname__", "")
    by_identity: Any = object.__eq__
    if type(a).__eq__ is by_identity and not isinstance(a, _SINGLE):
        return True
    if isinstance(a, float | complex) and a != a:  # NaN
        return bool(b != b)
    try:
        return bool(a == b)
    except Exception:  # `==` returned several values, for example for an object array
        return repr(a) == repr(b)


def _tensor_difference(
    group: str,
    eager: Mapping[str, torch.Tensor],
    captured: Mapping[str, torch.Tensor],
    rtol: Tolerance,
    atol: Tolerance,
) -> Unequal | None:
    """Return the first difference of one kind of tensors; see `Unequal.what` for `group`."""
    # The keys of outputs were compared by `_structure_difference`.
    if group != "outputs" and captured.keys() != eager.keys():
        return Unequal(f"{group}: {_only_in_one(captured, eager)}")
    for name, tensor in captured.items():
        expected = eager[name]
        # One object: neither run changed it.
        if group == "state" and (tensor is expected or tensor.is_meta):
            continue
        label = f"gradient of {name!r}" if group == "gradients" else name
        if tensor.is_meta:
            raise CaptureError(
                f"{label} is on the meta device, so it has no values to compare: capture with real "
                "tensors"
            )
        relative, allowed = tolerances(rtol, atol, tensor)
        try:
            # Two jagged tensors with equal offsets of their own have different symbolic shapes.
            if not tensor.is_nested or tensor.layout is not torch.jagged:
                torch.testing.assert_close(
                    tensor, expected, rtol=relative, atol=allowed, equal_nan=True
                )
        except AssertionError as error:
            when = "after the call, " if group == "state" else ""
            problem = f"{when}{label} differs from the eager run:\n{error}"
            return Unequal(problem, group, name, expected, tensor)
        if problem := _subclass_difference(label, expected, tensor, relative, allowed):
            return Unequal(problem, group, name, expected, tensor)
    return None


def _subclass_difference(
    label: str, eager: Any, captured: Any, rtol: float | None, atol: float | None
) -> str:
    """Return the difference in class, or in the tensors inside a wrapper subclass; "" if none.

    `assert_close` sees a subclass only through the ops that the subclass implements.
    """
    # In eager, a collective returns a tensor that waits when it is used; compiled code waits.
    captured, eager = torch_private.wait(captured), torch_private.wait(eager)
    # `subclass_of` also has metadata of the class, such as placements.
    names = ([_full_name(type(x)), torch_private.subclass_of(x)] for x in (captured, eager))
    for name, expected_name in zip(*names, strict=True):
        if name != expected_name:
            return f"{label} is a {name}, but a {expected_name} in the eager run"
    if not is_traceable_wrapper_subclass(captured):
        return ""
    inner_names, _ = captured.__tensor_flatten__()
    for name in inner_names:
        inner, expected = getattr(captured, name), getattr(eager, name, None)
        if not isinstance(inner, torch.Tensor) or not isinstance(expected, torch.Tensor):
            continue
        try:
            torch.testing.assert_close(inner, expected, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return f"{label}.{name} differs from the eager run:\n{error}"
        if problem := _subclass_difference(f"{label}.{name}", expected, inner, rtol, atol):
            return problem
    return ""
