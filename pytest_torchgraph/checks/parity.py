"""Comparison of a captured run with an eager run: outputs, gradients and final state."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..context import CONTEXT
from ..errors import CaptureError
from ..graph.checks import need_any_graph
from ..graph.divergence import Divergence, Stage
from ..graph.failures import UnexpectedOps, failed
from ..words import listed
from .causes import Causes, causes_of
from .rounding import Tolerance, Unequal, absolute, explained, is_all_nan, sized, tolerances
from .subject import EagerComparison, StepResult

if TYPE_CHECKING:
    from .subject import Subject

_SEARCHED = ("aot", "inductor", "dynamo")
"""Mechanisms whose stages can be captured separately."""
_SINGLE = (type, enum.Enum, torch.dtype, torch.layout, torch.memory_format)
"""Types with one object per value. Objects of other types are never equal by identity."""
_ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "nothing"})()


def assert_matches_eager(
    capture: Subject, comparison: EagerComparison | None, rtol: Tolerance, atol: Tolerance
) -> None:
    """See `Capture.assert_matches_eager`."""
    __tracebackhide__ = True
    compared = _Compared(capture, comparison, rtol, atol)
    found, outcome, expected = compared.found, compared.outcome, compared.expected
    if found is not None:
        causes = compared.causes()
        rounds = explained(found, compared.comparison, expected) if causes.may_be_rounding else ()
        lines = [found.problem, *sized(found), *causes.lines, *rounds]
        seconds = CONTEXT.divergence
        if not seconds or capture.via not in _SEARCHED:
            raise AssertionError("\n".join(lines))
        divergence = compared.divergence(causes, seconds)
        raise failed("\n".join([*lines, str(divergence)]), _picture(divergence))
    _refuse_empty(outcome)
    outputs, grads = outcome.outputs, outcome.grads
    nan = [name for name, output in outputs.items() if is_all_nan(output)]
    nan += [f"gradient of {name}" for name, grad in grads.items() if is_all_nan(grad)]
    if nan:
        contain = "contains" if len(nan) == 1 else "contain"
        raise AssertionError(
            f"nothing compared: {listed(nan)} {contain} only NaN. Use inputs and parameters "
            "that give finite numbers"
        )
    _refuse_small("outputs", expected.outputs, outcome.outputs, rtol, atol)
    _refuse_small("gradients", expected.grads, outcome.grads, rtol, atol)


def first_difference(
    capture: Subject, comparison: EagerComparison | None, rtol: Tolerance, atol: Tolerance
) -> Divergence | None:
    """See `Capture.first_difference`."""
    if capture.via not in _SEARCHED:
        raise CaptureError(
            f"first_difference() is not available via {capture.via!r}: capture the same call via "
            f"{listed(_SEARCHED)}"
        )
    compared = _Compared(capture, comparison, rtol, atol)
    if compared.found is None:
        return None
    return compared.divergence(compared.causes(), None)


class _Compared:
    """A captured run and an eager one.

    Raises:
        CaptureError: if there is no run to compare with.
    """

    def __init__(
        self,
        capture: Subject,
        comparison: EagerComparison | None,
        rtol: Tolerance,
        atol: Tolerance,
    ):
        need_any_graph(capture.graphs)
        if comparison is None:
            raise CaptureError(
                "this capture has no eager run to compare with: it was loaded from a file, or "
                "made with fake=True, by watch(), or for one of several ranks. Use "
                "graph_capture(target, ...)"
            )
        self.comparison = comparison
        self._capture, self._rtol, self._atol = capture, rtol, atol
        self.outcome = comparison.captured()
        kept = comparison.python()
        self.expected = comparison.eager()
        self.found = self._differ(self.expected, self.outcome, exact=False)
        self._changed = kept.changes() if self.found is not None else ()

    def _differ(
        self, eager: StepResult, other: StepResult, *, exact: bool = True
    ) -> Unequal | None:
        return difference(eager, other, *((0, 0) if exact else (self._rtol, self._atol)))

    def causes(self) -> Causes:
        """Look for the causes that can be proven by running eagerly."""
        return causes_of(self.comparison, self.expected, self.outcome, self._changed, self._differ)

    def divergence(self, causes: Causes, seconds: float | None) -> Divergence:
        """Return the first difference: a cause that is proven exactly ends the search."""
        if causes.kind:
            for graph in self._capture.program:
                nodes = tuple(node for node in graph.nodes if node.op == causes.op)
                if nodes:
                    first = nodes[0]
                    return Divergence(
                        "eager",
                        causes.kind,
                        (first,),
                        module=first.module,
                        graph=graph.name,
                        source=first.source,
                        sure=True,
                        drawn=graph,
                    )
            stage: Stage = "dynamo" if causes.kind == "random" else "eager"
            reason = (
                "" if stage == "eager" else "np.random draws different numbers in compiled code"
            )
            return Divergence(stage, causes.kind, sure=True, reason=reason)

        def differs(outcome: StepResult) -> bool:
            return self._differ(self.expected, outcome, exact=False) is not None

        return self.comparison.search(self.expected, differs, seconds)


def _picture(divergence: Divergence) -> UnexpectedOps | None:
    """Return the picture of a divergence: its graph with marked nodes."""
    if divergence.drawn is None or not divergence.nodes:
        return None
    return UnexpectedOps((divergence.drawn,), divergence.nodes, "first difference")


def _refuse_empty(outcome: StepResult) -> None:
    """Refuse outputs without an element, and gradients that are all zero."""
    outputs, grads = outcome.outputs, outcome.grads
    if outputs and not any(output.numel() for output in outputs.values()):
        has = "has" if len(outputs) == 1 else "have"
        raise AssertionError(
            f"nothing compared: {listed(outputs)} {has} no elements. Use inputs for which the "
            "output is not empty"
        )
    if grads and not any(bool(_dense(grad).count_nonzero()) for grad in grads.values()):
        raise AssertionError(
            f"nothing compared: all {len(grads)} gradients are zero. Pass a loss_fn that depends "
            "on the output"
        )


def _refuse_small(
    what: str,
    eager: Mapping[str, torch.Tensor],
    captured: Mapping[str, torch.Tensor],
    rtol: Tolerance,
    atol: Tolerance,
) -> None:
    """Refuse values so small that zeros would match them.

    Raises:
        AssertionError: if no floating-point value of both runs exceeds its tolerance.
    """
    floats = [
        (name, tensor)
        for tensors in (eager, captured)
        for name, tensor in tensors.items()
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel()
    ]
    largest, at, limit = 0.0, "", 0.0
    for name, tensor in floats:
        size, allowed = _largest(tensor), absolute(rtol, atol, tensor)
        if not size <= allowed:  # True for NaN, unlike `size > allowed`
            return
        if size >= largest:
            largest, at, limit = size, name, allowed
    if not floats:
        return
    label = at if what == "outputs" else f"the gradient of {at}"
    values = "all floating-point outputs" if what == "outputs" else "all gradients"
    allows = f"are at most the absolute tolerance, {limit:.3g}"
    if math.isinf(limit):
        allows = "are within a relative tolerance of 1 or more"
    remedy = (
        "use inputs that give larger outputs"
        if what == "outputs"
        else "use a loss_fn with larger gradients, for example a sum instead of a mean"
    )
    raise AssertionError(
        f"nothing compared: {values} {allows}, so zeros would pass too (largest value: "
        f"{largest:.3g}, in {label}). Pass a smaller tolerance, such as "
        f"assert_matches_eager(atol=0), or {remedy}"
    )


def _largest(tensor: torch.Tensor) -> float:
    values = _dense(tensor.values() if tensor.is_nested else tensor)
    return float(values.abs().max())


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def difference(
    eager: StepResult, captured: StepResult, rtol: Tolerance, atol: Tolerance
) -> Unequal | None:
    """Return the first difference: tensors outside the tolerance, or anything else not equal.

    Returns `None` if there is no difference.

    Raises:
        CaptureError: for tensors on the meta device.
    """
    return (
        _of_structure(eager, captured)
        or _of_tensors("outputs", eager.outputs, captured.outputs, rtol, atol)
        or _of_values(eager, captured)
        or _of_tensors("gradients", eager.grads, captured.grads, rtol, atol)
        or _of_tensors("state", eager.state, captured.state, rtol, atol)
    )


def _of_structure(eager: StepResult, captured: StepResult) -> Unequal | None:
    """Return a container or leaf of another type, else a missing one."""
    left, right = _types(captured), _types(eager)
    for path, kind in left.items():
        other = right.get(path, kind)
        if _full_name(kind) != _full_name(other):
            names = _named(kind), _named(other)
            if names[0] == names[1]:
                names = _full_name(kind), _full_name(other)
            return Unequal(
                f"{path} differs from the eager run: {names[0]}, but {names[1]} in the eager run"
            )
    if left.keys() != right.keys():
        return Unequal(f"outputs: {_only_in_one(left, right)}")
    return None


def _only_in_one(captured: Mapping[str, object], eager: Mapping[str, object]) -> str:
    """Name the values that only one of the two runs has."""
    only = {
        "captured": [name for name in captured if name not in eager],
        "eager": [name for name in eager if name not in captured],
    }
    return "; ".join(
        f"only the {run} run has {', '.join(names[:5])}" for run, names in only.items() if names
    )


def _types(outcome: StepResult) -> dict[str, type]:
    """Return the types of all leaves and containers of an output, by path."""
    return {
        **dict.fromkeys(outcome.outputs, torch.Tensor),
        **{path: type(value) for path, value in outcome.others.items()},
        **outcome.containers,
    }


def _full_name(kind: type) -> str:
    """Return the name of a type. A type defined in a function is a new object in each run."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _named(kind: type) -> str:
    name = "tensor" if kind is torch.Tensor else kind.__name__
    if name == "NoneType":
        return "None"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _of_values(eager: StepResult, captured: StepResult) -> Unequal | None:
    """Return a differing non-tensor leaf, or a tensor that requires grad in only one run."""
    for path, value in captured.others.items():
        expected = eager.others.get(path, _ABSENT)
        if not _is_same(value, expected):
            return Unequal(
                f"{path} differs from the eager run: {_shown(value)}, but {_shown(expected)} in "
                "the eager run"
            )
    for path in captured.outputs:
        if (path in captured.requires_grad) != (path in eager.requires_grad):
            has = "requires grad" if path in captured.requires_grad else "does not require grad"
            other = "does not" if path in captured.requires_grad else "does"
            return Unequal(
                f"{path} differs from the eager run: it {has}, but {other} in the eager run"
            )
    return None


def _shown(value: Any) -> str:
    return f"{value!r:.200} ({type(value).__name__})"


def _is_same(a: Any, b: Any) -> bool:
    """Return True for equal values of one type; NaN equals NaN, objects without `==` their type."""
    if callable(a) and not isinstance(a, type):
        return getattr(a, "__qualname__", "") == getattr(b, "__qualname__", "")
    by_identity: Any = object.__eq__
    if type(a).__eq__ is by_identity and not isinstance(a, _SINGLE):
        return True
    if isinstance(a, float | complex) and a != a:
        return bool(b != b)
    try:
        return bool(a == b)
    except Exception:  # `==` returned several values, for example for an object array
        return repr(a) == repr(b)


def _of_tensors(
    what: str,
    eager: Mapping[str, torch.Tensor],
    captured: Mapping[str, torch.Tensor],
    rtol: Tolerance,
    atol: Tolerance,
) -> Unequal | None:
    if what != "outputs" and captured.keys() != eager.keys():
        return Unequal(f"{what}: {_only_in_one(captured, eager)}")
    for name, tensor in captured.items():
        if what == "state" and (tensor is eager[name] or tensor.is_meta):
            continue
        label = f"gradient of {name}" if what == "gradients" else name
        if tensor.is_meta:
            raise CaptureError(
                f"{label} is on the meta device, so it has no values to compare: capture with real "
                "tensors"
            )
        relative, allowed = tolerances(rtol, atol, tensor)
        try:
            torch.testing.assert_close(
                tensor, eager[name], rtol=relative, atol=allowed, equal_nan=True
            )
        except AssertionError as error:
            after = " after the call" if what == "state" else ""
            problem = f"{label} differs from the eager run{after}:\n{error}"
            return Unequal(problem, what, name, eager[name], tensor)
    return None
