"""Gradients that only one of two backwards returns, named by the inputs of the forward.

A `detach`, a block under `no_grad` or a frozen parameter is no op of a graph below autograd: other
values are saved, and ops of the backward are missing. What the user notices is the gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ..model import INPUT_OPS, Graph, Ref
from .differing import have_same_result
from .findings import SIDES, Change, Finding, ops_of
from .paths import abridged

SAVED_DIFFER = "different values are saved for the backward"
"""Part of the summary of a forward that only saves other values."""


def attach_gradients(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each with the gradients that it removes or adds.

    A finding without an edited op gets a summary of them.
    """
    # The changes of all findings in each pair of backwards, with the numbers of the findings.
    pairs: dict[tuple[int, ...], list[tuple[int, Change]]] = {}
    for number, finding in enumerate(findings):
        for place in finding.places:
            for change in (*place.changes, *place.consequences):
                if change.within and change.within[0].kind == "backward":
                    key = tuple(map(id, change.within))
                    pairs.setdefault(key, []).append((number, change))
    names: list[dict[str, list[str]]] = [{kind: [] for kind in SIDES} for _ in findings]
    for changes in pairs.values():
        graphs = changes[0][1].within
        returning = [number for number, change in changes if change.node.kind == "output"]
        for side, kind in enumerate(SIDES):
            owners = {change.node.name: n for n, change in changes if change.kind == kind}
            for name, value in _lost(graphs[side], graphs[not side], owners):
                # A gradient that is still computed is lost by the return.
                for number in [owners[value]] if value in owners else returning[:1]:
                    names[number][kind].append(name)
    found = []
    for finding, of_finding in zip(findings, names, strict=True):
        lines = tuple(
            f"{'gradient' if len(lost) == 1 else 'gradients'} of {abridged(lost)} {kind}"
            for kind, lost in of_finding.items()
            if lost
        )
        has_no_op = SAVED_DIFFER in finding.summary
        if lines and not finding.summary:
            # If the backward does not read the mask of a dropout, the projection is gone.
            has_no_op = not ops_of(finding.changes)
        if lines and has_no_op:
            finding = replace(finding, summary="; ".join(lines))
        found.append(replace(finding, gradients=lines))
    return found


def _lost(first: Graph, second: Graph, gone: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the inputs of both forwards whose gradient only the first of two backwards returns.

    Args:
        first, second: the backwards.
        gone: the values that only the first one has.

    Yields:
        The name of the input, and the name of the gradient.
    """
    gradients, others = _gradients(first), _gradients(second)
    kept = {node.name for node in second.saver.inputs} if second.saver else ()
    if not others:
        # An eager backward returns no `None`. If it lacks a gradient, the others have no names,
        # and the lost ones are those that are gone, unless others came in their place.
        others = {name: value for name, value in gradients.items() if value not in gone}
        if len(others) != len(_returned(second)):
            return
    for name, value in gradients.items():
        if value and name in kept and not others.get(name):
            yield name, value


def _gradients(backward: Graph) -> dict[str, str]:
    """Return the name of the gradient of each input of the forward, "" without one; {} if unknown.

    A compiled backward returns one for each input, an eager one only gradients, parameters first.
    """
    returned = _returned(backward)
    nodes = [backward.by_name.get(name) for name in returned]
    for roles in (INPUT_OPS, ("parameter",)):
        inputs = [n for n in (backward.saver.inputs if backward.saver else ()) if n.op in roles]
        # As many values may be others: of an input in place of a frozen parameter, for example.
        # A gradient has the dtype and the shape of its input.
        if len(inputs) == len(nodes) and all(
            node is None or have_same_result(node, of)
            for node, of in zip(nodes, inputs, strict=True)
        ):
            return dict(zip([node.name for node in inputs], returned, strict=True))
    return {}


def _returned(backward: Graph) -> list[str]:
    """Return the names of the values that a backward returns, "" for `None`."""
    returned = backward.nodes[-1].args[0]
    values = returned if isinstance(returned, tuple) else (returned,)
    return [value.name if isinstance(value, Ref) else "" for value in values]
