"""Side effects on one resource keep their order, and independent ones are unordered."""

from __future__ import annotations

import itertools

import pytest
from graph.build import graph

from pytest_torchgraph.graph import Graph


def orders(*lines: str, tail: str) -> list[Graph]:
    """Return the graphs that have these lines in every order."""
    return [graph("\n".join([*order, tail])) for order in itertools.permutations(lines)]


@pytest.mark.parametrize(
    ("one", "two", "ordered"),
    [
        ("!random", "!random", True),
        ("!communicates", "!communicates", True),
        ("!syncs", "!syncs", True),
        ("!syncs", "!random", False),
        ("!opaque", "!opaque", True),
        ("!mutates %x", "!mutates %x", True),
        ("!opaque", "!random", True),
        ("!communicates", "!opaque", True),
        ("!mutates %x", "!opaque", True),
        ("!random !mutates %x", "!mutates %x", True),
        ("!random", "!communicates", False),
        ("!mutates %x", "!mutates %y", False),
        ("!mutates %x", "!random", False),
    ],
)
def test_effects_on_one_resource_are_ordered_and_others_are_not(
    one: str, two: str, ordered: bool
) -> None:
    forth, back = orders(f"%a = f(1) {one}", f"%b = g(2) {two}", tail="return %x")
    assert (forth != back) is ordered
