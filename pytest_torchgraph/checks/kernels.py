"""Assertions on generated kernels and library calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..graph.checks import bounds, device_of, format_bounds, need_a_limit

if TYPE_CHECKING:
    from ..watching.kernels import Kernel
    from .subject import Subject

MOST = 4
"""How many modules and lines a failure lists for one kernel."""


def assert_kernel_count(capture: Subject, n: Any, extern: Any, launches: Any) -> None:
    """See `Capture.assert_kernel_count`."""
    __tracebackhide__ = True
    kernels = capture.kernels
    generated = [each for each in kernels if not each.is_extern]
    libraries = [each for each in kernels if each.is_extern]
    counts = (
        ("generated kernels", n, len(generated)),
        ("library calls", extern, sum(each.launches for each in libraries)),
        ("launches of generated kernels", launches, sum(each.launches for each in generated)),
    )
    device = device_of(capture.graphs, capture.device)
    asked = [
        (word, *bounds(expected, device), found)
        for word, expected, found in counts
        if expected is not None
    ]
    need_a_limit("assert_kernel_count", [(low, high) for _, low, high, _ in asked])
    wrong = []
    for word, low, high, found in asked:
        if found < low or (high is not None and found > high):
            wrong.append(f"  {word}: expected {format_bounds(low, high)}, found {found}")
    if wrong:
        there = [f"  {line}" for each in kernels for line in described(each)] or ["  none"]
        raise AssertionError(
            "\n".join(
                ["kernel count differs:", *wrong, "launched, in the order of the code:", *there]
            )
        )


def described(kernel: Kernel) -> Sequence[str]:
    """A kernel or library call in words, with what it computes and where that is written."""
    word = "library call" if kernel.is_extern else f"{kernel.kind} kernel"
    times = f", {kernel.launches} times" if kernel.launches != 1 else ""
    on = f" on {kernel.device}" if kernel.device else ""
    lines = [f"{kernel.graph}: {kernel.name} ({word}{on}{times})"]
    if kernel.ops and not kernel.is_extern:
        lines.append(f"    {', '.join(kernel.ops)}")
    if kernel.modules:
        lines.append(f"    in {_few(kernel.modules)}")
    if kernel.lines:
        lines.append(f"    at {_few([f'{line}: {line.code}' for line in kernel.lines])}")
    return lines


def _few(words: Sequence[str]) -> str:
    more = f" and {len(words) - MOST} more" if words[MOST:] else ""
    return f"{', '.join(words[:MOST])}{more}"
