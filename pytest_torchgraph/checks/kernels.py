"""Assertions on generated kernels and library calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.checks import bounds, device_of, format_bounds, need_a_limit
from ..words import listed

if TYPE_CHECKING:
    from ..watching.kernels import Kernel
    from .subject import Subject

MOST = 4
"""How many ops, modules and lines a failure lists for one kernel."""
MOST_LISTED = 12
"""How many kernels and library calls a failure lists."""


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
    wrong, kinds = [], set()
    for word, low, high, found in asked:
        if found < low or (high is not None and found > high):
            wrong.append(f"  {word}: expected {format_bounds(low, high)}, found {found}")
            kinds.add(word == "library calls")
    if wrong:
        there = [each for each in kernels if each.is_extern in kinds]
        lines = ["kernel count differs:", *wrong, "launched, in the order of the code:"]
        raise AssertionError("\n".join([*lines, *(f"  {line}" for line in _listed(there))]))


def _listed(kernels: Sequence[Kernel]) -> Iterator[str]:
    """What was launched, the same library call of one graph once, and no more than fits."""
    groups: dict[tuple[str, ...], list[Kernel]] = {}
    for each in kernels:
        groups.setdefault((each.graph, each.name, each.device), []).append(each)
    for group in [*groups.values()][:MOST_LISTED]:
        yield from described(group)
    if rest := [*groups.values()][MOST_LISTED:]:
        count = sum(len(group) for group in rest)
        yield f"... and {count} more: print(capture.kernels) has all, with what they compute"
    if not groups:
        yield "none"


def described(kernels: Sequence[Kernel]) -> Iterator[str]:
    """A kernel or library call in words, with what it computes and where that is written.

    Args:
        kernels: its calls in the code.
    """
    first, launches = kernels[0], sum(each.launches for each in kernels)
    word = "library call" if first.is_extern else f"{first.kind} kernel"
    times = f", {launches} times" if launches != 1 else ""
    on = f" on {first.device}" if first.device else ""
    yield f"{first.graph}: {first.name} ({word}{on}{times})"
    if not first.is_extern and (ops := list(dict.fromkeys(o for k in kernels for o in k.ops))):
        yield f"    {listed(ops, MOST)}"
    if modules := list(dict.fromkeys(path for each in kernels for path in each.modules)):
        yield f"    in {listed(modules, MOST)}"
    if lines := dict.fromkeys(f"{line}: {line.code}" for k in kernels for line in k.lines):
        yield f"    at {listed(lines, MOST)}"
