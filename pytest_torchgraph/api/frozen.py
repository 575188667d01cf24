"""The search for numbers that change from step to step and are constants of compiled graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted
from ..errors import CaptureError
from ..graph.events import Frozen
from ..graph.model import Graph, Node
from ..graph.module_paths import numbered
from ..mechanisms.protocol import Mechanism
from ..mechanisms.step import Invocation, RandomState, Step, preserve_state
from ..watching.observe import HUB

UNNAMED = "a number outside of updates="
"""The name of a frozen number if no number of `updates=` changes."""


def find_frozen(
    mechanism: Mechanism, invocation: Invocation, random: RandomState, graphs: Sequence[Graph]
) -> tuple[Frozen, ...]:
    """Capture the step after the captured one, and compare the constants of the compiled graphs.

    Args:
        mechanism, invocation: the captured step.
        random: the random number generators before the capture.
        graphs: the compiled graphs of the captured step.

    Raises:
        CaptureError: if nothing was compiled, or if the next step's graphs have other ops.
    """
    updates = invocation.updates
    if updates is None or mechanism.name == "dispatch":
        raise CaptureError(
            "frozen numbers are those of compiled graphs, and nothing was compiled: use "
            "graph_capture(step, ..., via='aot', updates=(model, optimizer))"
        )
    # Repeat the warm-up and the captured step, eagerly, and capture the step after it.
    with HUB.paused(), preserve_state(invocation.named, updates=updates) as saved:
        random.restore()
        step = Step(invocation, saved)
        with torch_private.run_eagerly(lambda _: None):
            step.warm_up()
            before = updates.numbers()
            invocation.call()
            after = updates.numbers()
        captured = mechanism.capture(step, CanonicalNames())
    next_graphs = numbered(c.graph for c in captured.graphs if isinstance(c, Converted))  # type: ignore[union-attr]
    changed = {n: (v, after[n]) for n, v in before.items() if n in after and after[n] != v}
    # A state that is made lazily has no number before the first step.
    changed.update((n, (math.nan, v)) for n, v in after.items() if n not in before)
    return tuple(_differences(graphs, next_graphs, changed))


def _differences(
    graphs: Sequence[Graph],
    next_graphs: Sequence[Graph],
    changed: Mapping[str, tuple[float, float]],
) -> Iterator[Frozen]:
    """Yield one entry for each op with a number that differs in the next step.

    Args:
        graphs, next_graphs: the graphs of the captured step and of the next one.
        changed: the numbers of the state that the captured step changed, each before and after, by
            name.
    """
    for graph, later in zip_longest(graphs, next_graphs):
        calls, other_calls = map(_calls, (graph, later))
        if [node.op for node in calls] != [node.op for node in other_calls]:
            name = (graph or later).name
            raise CaptureError(
                f"{name} has other ops in the next step, so its constants cannot be compared: "
                "capture a later step, warmup=2"
            )
        for node, other in zip(calls, other_calls, strict=True):
            # An argument that equals its default is left out.
            pairs = zip_longest(_numbers(node), _numbers(other), fillvalue=math.nan)
            different = [pair for pair in pairs if pair[0] != pair[1]]
            if different:
                explanations = changed or {UNNAMED: different[0]}
                name = _explain(different, explanations)
                yield Frozen(name, *explanations[name], graph.name, node, node.source)


def _calls(graph: Graph | None) -> list[Node]:
    """Return the ops of a graph, [] for `None`.

    The inputs are not compared, because those of the next step may have no names.
    """
    return [] if graph is None else [node for node in graph.nodes if node.is_call]


def _numbers(node: Node) -> list[float]:
    """Return the Python numbers among the arguments of a node, in the same order for equal ops."""
    numbers: list[float] = []
    items: list[Any] = [node.args, dict(node.kwargs)]
    while items:
        item = items.pop()
        if isinstance(item, dict):
            items += item.values()
        elif isinstance(item, tuple):
            items += item
        elif isinstance(item, int | float) and not isinstance(item, bool):
            numbers.append(item)
    return numbers


def _explain(
    different: Sequence[tuple[float, float]], changed: Mapping[str, tuple[float, float]]
) -> str:
    """Return the name of the changed number that explains the difference of a constant.

    The constant is the number itself, a multiple of it, or another function of it. For a function,
    return the first changed number.

    Args:
        different: the constants of an op that differ, each in both steps.
        changed: the changed numbers, as in `_differences`; not empty.
    """
    # First all numbers as they are: by chance, one may also be a multiple of another.
    for allows_multiple in (False, True):
        for name, (now, later) in changed.items():
            for a, b in different:
                # Both have the same ratio. With a zero, every number would be a multiple.
                is_multiple = math.isclose(a * later, b * now, rel_tol=1e-9) and b * now != 0
                if (a, b) == (now, later) or (allows_multiple and is_multiple):
                    return name
    return next(iter(changed))
