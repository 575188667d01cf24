"""Gradients that only one of two backwards returns, named by the inputs of the forward.

A `detach`, a block under `no_grad` or a frozen parameter is no op of a graph below autograd: other
values are saved, and ops of the backward are missing. What the user notices is the gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..equality import inputs_of_gradients
from ..model import Graph, Ref
from .differing import have_same_result
from .findings import SIDES, Change, ChangeKind, Finding, ops_of
from .paths import abridged

SAVED_DIFFER = "different values are saved for the backward"
"""Part of the summary of a forward that only saves other values."""


def attach_gradients(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each with the gradients that it removes or adds.

    A finding without an edited op gets a summary of them.
    """
    names = _names_by_finding(findings)
    return [_with_gradients(*pair) for pair in zip(findings, names, strict=True)]


def _with_gradients(finding: Finding, names: Mapping[ChangeKind, Sequence[str]]) -> Finding:
    """Return a finding with the gradients of these inputs, if there are any."""
    lines = tuple(
        f"{'gradient' if len(inputs) == 1 else 'gradients'} of {abridged(inputs)} {kind}"
        for kind, inputs in names.items()
        if inputs
    )
    if not lines:
        return finding
    summary = finding.summary
    # Changes may be no ops: if a backward does not read a dropout's mask, its projection is gone.
    if SAVED_DIFFER in summary or not (summary or ops_of(finding.changes)):
        summary = "; ".join(lines)
    return replace(finding, summary=summary, gradients=lines)


def _names_by_finding(findings: Sequence[Finding]) -> list[dict[ChangeKind, list[str]]]:
    """Return for each finding the inputs whose gradient it removes, and those of added ones."""
    # The changes of all findings in each pair of backwards, with the numbers of the findings.
    pairs: dict[tuple[int, ...], list[tuple[int, Change]]] = {}
    for number, finding in enumerate(findings):
        for place in finding.places:
            for change in (*place.changes, *place.consequences):
                if change.within and change.within[0].kind == "backward":
                    key = tuple(map(id, change.within))
                    pairs.setdefault(key, []).append((number, change))
    names: list[dict[ChangeKind, list[str]]] = [{kind: [] for kind in SIDES} for _ in findings]
    for changes in pairs.values():
        graphs = changes[0][1].within
        returning = [number for number, change in changes if change.node.kind == "output"]
        for side, kind in enumerate(SIDES):
            owners = {change.node.name: n for n, change in changes if change.kind == kind}
            for name, value in _lost(graphs[side], graphs[not side], owners):
                # A gradient that is still computed is lost by the return.
                for number in [owners[value]] if value in owners else returning[:1]:
                    names[number][kind].append(name)
    return names


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
    """Return the name of the gradient of each input, "" without one; {} if unknown."""
    returned = _returned(backward)
    inputs = inputs_of_gradients(returned, backward.saver.inputs if backward.saver else ())
    names: dict[str, str] = {}
    for node, name in zip(inputs, returned, strict=False):
        # As many values may be others: of an input in place of a frozen parameter, for example.
        # A gradient has the dtype and the shape of its input.
        if name and not have_same_result(backward.by_name[name], node):
            return {}
        names[node.name] = name
    return names


def _returned(backward: Graph) -> list[str]:
    """Return the names of the values that a backward returns, "" for `None`."""
    returned = backward.nodes[-1].args[0]
    values = returned if isinstance(returned, tuple) else (returned,)
    return [value.name if isinstance(value, Ref) else "" for value in values]
