"""A captured run beside an eager one: outputs and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from ..errors import CaptureError
from ..graph.checks import need_any_graph
from .rounding import Difference, explained
from .subject import Comparison, Outcome
from .tolerances import Tolerance, is_all_nan, tolerances

if TYPE_CHECKING:
    from .subject import Subject


def assert_matches_eager(
    capture: Subject, comparison: Comparison | None, rtol: Tolerance, atol: Tolerance
) -> None:
    """See `Capture.assert_matches_eager`."""
    __tracebackhide__ = True
    need_any_graph(capture.graphs)
    if comparison is None:
        raise CaptureError(
            "there is no run to compare with: the capture was loaded from a file, or made with "
            "fake=True, by watch() or of one of several ranks"
        )
    expected, outcome = comparison.eager(), comparison.captured()
    found = difference(expected, outcome, rtol, atol)
    if found is not None:
        raise AssertionError("\n".join([found.problem, *explained(found, comparison)]))
    outputs, grads = outcome.outputs, outcome.grads
    if outputs and not any(output.numel() for output in outputs.values()):
        has = "has" if len(outputs) == 1 else "have"
        raise AssertionError(
            f"{_few(outputs)} {has} no element, so nothing was compared: give the target inputs of "
            "which it returns some"
        )
    if grads and not any(bool(_dense(grad).count_nonzero()) for grad in grads.values()):
        raise AssertionError(
            f"all {len(grads)} gradients are zero, so nothing is known about them: choose a "
            "loss_fn that depends on the output"
        )
    nan = [name for name, output in outputs.items() if is_all_nan(output)]
    nan += [f"gradient of {name}" for name, grad in grads.items() if is_all_nan(grad)]
    if nan:
        is_it = ("is", "it") if len(nan) == 1 else ("are", "them")
        raise AssertionError(
            f"{_few(nan)} {is_it[0]} NaN throughout, so nothing is known about {is_it[1]}: give "
            "the target inputs and parameters that it computes numbers from"
        )


def _few(names: Iterable[str], most: int = 5) -> str:
    shown = list(names)
    more = f" and {len(shown) - most} more" if shown[most:] else ""
    return f"{', '.join(shown[:most])}{more}"


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def difference(
    eager: Outcome, captured: Outcome, rtol: Tolerance, atol: Tolerance
) -> Difference | None:
    """The first tensor that differs; None where all are close.

    Raises:
        CaptureError: for tensors on the meta device.
    """
    for what, left, right in (
        ("outputs", captured.outputs, eager.outputs),
        ("gradients", captured.grads, eager.grads),
    ):
        if left.keys() != right.keys():
            only = sorted(left.keys() ^ right.keys())
            return Difference(f"{what}: only one of the two runs gave {', '.join(only[:5])}")
        for name, tensor in left.items():
            label = name if what == "outputs" else f"gradient of {name}"
            if tensor.is_meta:
                raise CaptureError(f"{label} is on the meta device: it has no values to compare")
            relative, absolute = tolerances(rtol, atol, tensor)
            try:
                torch.testing.assert_close(
                    tensor, right[name], rtol=relative, atol=absolute, equal_nan=True
                )
            except AssertionError as error:
                problem = f"{label} differs from the eager run:\n{error}"
                return Difference(problem, what == "outputs", name, right[name], tensor)
    return None
